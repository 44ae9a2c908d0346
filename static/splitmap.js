// A split map is walked through step by step: its strip becomes one line, and what that line tells is lit in the picture.
// The file may stand in a page more than once, with each map.
if (!window.splitMapsWalk) {
  window.splitMapsWalk = true;

  const show = (walk, number) => {
    const steps = [...walk.querySelectorAll(".strip > li")];
    const at = (number + steps.length) % steps.length;
    steps.forEach((step, i) => (i === at ? step.setAttribute("aria-current", "step") : step.removeAttribute("aria-current")));
    const lit = steps[at].dataset.lit.split(" ").filter(Boolean);
    const axes = new Set(lit.map((mark) => mark.split("-")[0]));
    walk.querySelector("svg").classList.toggle("is-step", at > 0);
    for (const mark of walk.querySelectorAll("svg [data-at]")) {
      const on = lit.includes(mark.dataset.at) || axes.has(mark.dataset.at);
      mark.classList.toggle("is-lit", at > 0 && on);
      mark.classList.toggle("is-quiet", at > 0 && !on);
    }
    walk.querySelector("[data-number]").textContent = at + 1;
  };
  const now = (walk) => [...walk.querySelectorAll(".strip > li")].findIndex((step) => step.hasAttribute("aria-current"));
  const begin = () => {
    for (const walk of document.querySelectorAll("[data-walk]:not(.is-walked)")) {
      walk.classList.add("is-walked");
      walk.querySelector(".actions").hidden = false;
      show(walk, Math.max(now(walk), 0));
    }
  };

  document.addEventListener("click", ({ target }) => {
    const button = target.closest?.("[data-walk] [data-by]");
    if (!button) return;
    const walk = button.closest("[data-walk]");
    show(walk, now(walk) + Number(button.dataset.by));
  });
  document.addEventListener("keydown", (event) => {
    const walk = event.target.closest?.("[data-walk]");
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!walk || !by || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    show(walk, now(walk) + by);
  });
  document.addEventListener("htmx:afterSettle", begin);
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin);
  else begin();
}
