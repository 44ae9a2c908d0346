// A request that fails changes nothing on the page, so the page says that it failed.
function notice(text) {
  const element = document.getElementById("notice");
  element.textContent = text;
  element.hidden = !text;
}
document.addEventListener("htmx:afterOnLoad", ({ detail }) => { if (detail.successful) notice(""); });
document.addEventListener("htmx:responseError", ({ detail }) =>
  notice(`The site could not do that (status ${detail.xhr.status}). Reload the page and try again.`));
document.addEventListener("htmx:sendError", () =>
  notice("The site does not answer, so nothing was changed. Is it still running?"));

// A button that copies what it stands under shows itself only where a script can do it.
function offerCopies() {
  for (const button of document.querySelectorAll("button[data-copy]")) button.hidden = !navigator.clipboard;
}
offerCopies();
document.addEventListener("htmx:afterSettle", offerCopies);
document.addEventListener("click", async ({ target }) => {
  const button = target.closest?.("button[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
});
