"""What a template keeps is rendered once for each value that makes a difference."""

from django.template import Context, Engine

ENGINE = Engine(builtins=["calculators.templatetags.kept"])


class Looked:
    """Says how often a template has looked."""

    def __init__(self):
        self.times = 0

    def __str__(self):
        self.times += 1
        return f"look {self.times}"


def test_what_is_kept_is_rendered_once_for_each_value():
    template, looked = ENGINE.from_string("{% kept theme %}{{ theme }}: {{ looked }}{% endkept %}"), Looked()

    said = [
        template.render(Context({"theme": theme, "looked": looked})) for theme in ("dark", "light", "dark")
    ]

    assert said == ["dark: look 1", "light: look 2", "dark: look 1"]


def test_without_a_value_it_is_rendered_once():
    template, looked = ENGINE.from_string("{% kept %}{{ looked }}{% endkept %}, {{ looked }}"), Looked()

    said = [template.render(Context({"looked": looked})) for _ in range(2)]

    assert said == ["look 1, look 2", "look 1, look 3"]


def test_the_page_that_is_shown_and_the_colours_stay_those_of_the_request(client):
    client.cookies["theme"] = "dark"
    dark = client.get("/calculate/memory").content.decode()
    client.cookies["theme"] = "light"
    light = client.get("/glossary/").content.decode()

    assert '<a href="/calculate/" aria-current="true">Calculate</a>' in dark
    assert '<a href="/glossary/" aria-current="page">Glossary</a>' in light
    assert '<a href="/calculate/">Calculate</a>' in light
    assert 'value="dark" aria-pressed="true"' in dark
    assert 'value="light" aria-pressed="true"' in light
