"""Tables say what they were given, and nothing of it runs."""

from django.utils.safestring import mark_safe

from calculators.tables import Row, Table


def table(**more):
    return Table(caption="Bytes", heads=("Axis", "Sent"), **more)


def test_the_first_cell_heads_its_row_and_the_others_are_numbers():
    html = table(rows=(Row(cells=("TP", 8)),)).html

    assert '<tr><th scope="row">TP</th><td class="num">8</td></tr>' in html


def test_columns_of_text_are_not_set_as_numbers():
    html = table(rows=(Row(cells=("TP", "a sum")),), texts=2).html

    assert "<td>a sum</td>" in html
    assert '<th scope="col">Sent</th>' in html


def test_a_chosen_line_a_total_and_a_family_say_so_in_their_classes():
    html = table(rows=(Row(cells=("TP", 1), is_chosen=True, is_total=True, family="tp"),)).html

    assert '<tr class="chosen total family-tp">' in html


def test_what_is_put_into_a_cell_is_text():
    html = table(rows=(Row(cells=("<script>alert(1)</script>", "&")),), name='"><script>').html

    assert "<script>" not in html
    assert "&lt;script&gt;" in html


def test_what_is_safe_already_stays_as_it_is():
    html = table(rows=(Row(cells=(mark_safe("<b>TP</b>"), 1)),)).html

    assert "<b>TP</b>" in html


def test_the_region_is_named_and_can_be_reached_by_keyboard():
    html = table(rows=(), name="numbers").html

    assert 'tabindex="0" role="region" aria-label="Bytes"' in html
    assert '<table class="table" id="numbers"><caption>Bytes</caption>' in html
