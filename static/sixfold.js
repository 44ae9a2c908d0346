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
