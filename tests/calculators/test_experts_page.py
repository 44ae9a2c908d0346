"""The experts page says what `calculators.predict.traffic.routing` calculates."""

import re
from html import unescape
from urllib.parse import parse_qs, urlsplit

import pytest
from django.urls import reverse

from calculators.pages import CALCULATORS
from calculators.pages.experts import EXPERTS, MOST_RANKS_DRAWN
from calculators.predict.traffic.routing import skewed_layer
from calculators.units import iec_bytes
from tests.calculators.reading import figure, table, words

PAGE = reverse("calculators:experts")
MIXTRAL = {"experts": 8, "experts_per_token": 2, "hidden_size": 4096, "ranks": 8, "tokens": 4096}


def said(response):
    return words(response).replace("\N{NO-BREAK SPACE}", " ")


def test_the_page_opens_on_a_mean_and_a_busiest_rank(client):
    spread = skewed_layer(**MIXTRAL, skew=0.5).exchange.received_spread

    response = client.get(PAGE)

    assert (
        f"a rank receives {iec_bytes(spread.mean)} on average and the busiest {iec_bytes(spread.hottest)}: "
        f"1.83 times the mean." in said(response)
    )
    assert "Place a copy of the hottest expert on a second rank" in said(response)


def test_a_balanced_router_gives_every_rank_the_same(client):
    response = client.get(PAGE, {"skew": "0"})

    rows = table(response, "ranks")[1:]
    assert {tuple(row[1:4]) for row in rows} == {("56", "56", "1")}
    assert "every rank sends and receives the same" in said(response)


def test_chart_and_table_say_the_same(client):
    exchange = skewed_layer(**MIXTRAL, skew=1.0).exchange

    response = client.get(PAGE, {"skew": "1"})

    receives, sends = figure(response, "ranks")["data"]
    assert receives["y"] == pytest.approx((exchange.dispatch.sum(axis=0) / 2**20).tolist())
    assert sends["y"] == pytest.approx((exchange.dispatch.sum(axis=1) / 2**20).tolist())
    assert [f"{row[2]} MiB" for row in table(response, "ranks")[1:]] == receives["text"]
    assert all(bar["marker"]["color"] == "rgba(0,0,0,0)" for bar in (receives, sends))  # predicted is hollow


def test_the_map_has_a_cell_for_each_pair_and_the_hottest_column_is_darkest(client):
    response = client.get(PAGE, {"skew": "1"})

    heat = table(response, "heat")
    assert len(heat) == 9
    assert heat[1][1] == "·"
    html = response.content.decode()
    darkest = re.findall(r'<td class="num heat-5">(.*?)</td>', html)
    assert len(darkest) == 7  # everybody else's to rank 0
    assert set(darkest) == {row[1] for row in heat[2:]}


def test_many_ranks_show_the_busiest_and_no_map(client):
    response = client.get(PAGE, {"model": "deepseek-v3", "ranks": "64"})

    assert len(table(response, "ranks")) == 1 + MOST_RANKS_DRAWN
    assert 'id="heat"' not in response.content.decode()
    assert "The 32 of 64 ranks that receive most" in said(response)


def test_a_capacity_drops_what_does_not_fit(client):
    layer = skewed_layer(**MIXTRAL, skew=1.0, capacity_factor=1.25)

    response = client.get(PAGE, {"skew": "1", "capacity": "1.25", "part": "formulas"})

    numbers = dict(row[:2] for row in table(response, "numbers")[1:])
    assert numbers["Places in an expert for one rank’s tokens"] == "1,280"
    assert numbers["Copies without a place"].startswith(f"{layer.routed.dropped:,.0f}, ")
    assert "of all copies find no place" in said(response)
    assert (
        r"\left\lceil \frac{1.25 \cdot 4{,}096 \cdot 2}{8} \right\rceil = 1{,}280"
        in response.content.decode()
    )


def test_one_copy_for_each_rank_is_in_the_formula_too(client):
    response = client.get(PAGE, {"model": "qwen3-30b-a3b", "copies": "rank", "skew": "0", "part": "formulas"})

    mean = skewed_layer(
        experts=128, experts_per_token=8, hidden_size=2048, ranks=8, tokens=4096, copies="rank"
    ).exchange.sent_spread.mean
    assert f"{round(mean):,}".replace(",", "{,}") + r"\,\text{B}" in response.content.decode()


def test_one_rank_has_all_the_experts(client):
    response = client.get(PAGE, {"ranks": "1"})

    assert "One rank has all the experts, so no token travels." in said(response)
    assert "Run it for real" not in said(response)


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ({"model": "llama-3.1-8b"}, "Llama 3.1 8B is dense: it has no experts to send tokens to."),
        ({"ranks": "3"}, "ranks is 3, which cannot share 8 experts equally. Nearest that work: 2 or 4."),
        ({"ranks": "0"}, "Ranks is 0, but the least that works is 1."),
        ({"skew": "nan"}, "Skew is “nan”, but it must be a number from 0 to 8."),
        ({"capacity": "-1"}, "Capacity factor is -1, but this page takes 0.01 to 100."),
        ({"copies": "node"}, "Copies of a token is “node”, but it must be one of “expert”, “rank”."),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(client, query, sentence):
    assert sentence in said(client.get(PAGE, query))


def test_the_python_gives_the_page_s_numbers(client):
    html = client.get(PAGE, {"skew": "1", "capacity": "1.25"}).content.decode()

    code = unescape(
        re.search(r"(from calculators\.predict\.traffic\.routing import skewed_layer.*?)</", html, re.DOTALL)[
            1
        ]
    )
    *imports, call = code.strip().split("\n\n")
    scope = {}
    exec("\n".join(imports), scope)
    layer = eval(call, scope)
    expected = skewed_layer(**MIXTRAL, skew=1.0, capacity_factor=1.25)
    assert layer.exchange.sent.tolist() == expected.exchange.sent.tolist()


def test_it_can_be_run_for_real_with_the_same_skew(client):
    html = client.get(PAGE, {"skew": "1.5"}).content.decode()

    found = re.search(r'href="([^"]*/runs/new\?[^"]*)"', html)
    query = parse_qs(urlsplit(unescape(found[1])).query)
    assert query["job"] == ["exchange"]
    assert query["pattern"] == ["experts"]
    assert query["skew"] == ["1.5"]
    assert query["back"][0].startswith(PAGE)


def test_the_state_is_the_address(client):
    response = client.get(
        PAGE, {"skew": "0.8", "ranks": "4"}, headers={"HX-Request": "true", "HX-Target": "result"}
    )

    assert response.headers["HX-Replace-Url"].endswith("?ranks=4&skew=0.8")
    assert b"<html" not in response.content


@pytest.mark.parametrize("preset", EXPERTS.presets, ids=lambda preset: preset.label)
def test_every_preset_shows_an_answer(client, preset):
    response = client.get(f"{PAGE}?{preset.query}")

    assert "Rank by rank" in said(response)


def test_the_page_is_among_the_calculators():
    assert EXPERTS in CALCULATORS
