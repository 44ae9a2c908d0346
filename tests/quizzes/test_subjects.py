"""Questions found by what they are about."""

import pytest

from quizzes.bank import import_pack
from quizzes.packs.checking import check_pack
from quizzes.subjects import SUBJECTS
from tests.quizzes.test_rules import DEEP, HEADER, WIDE

pytestmark = pytest.mark.django_db


@pytest.fixture
def tagged(write_pack):
    wide = WIDE.replace(
        "  facts", "  title: Secret title\n  tags: [symptom-wide-layer, distractor-tp-pp]\n  facts"
    )
    deep = DEEP.replace("  facts", "  tags: [distractor-tp-pp]\n  facts")
    import_pack(check_pack(write_pack(wide + deep, header=HEADER)))


def test_a_subject_lists_its_questions_without_their_titles(tagged, client):
    page = client.get("/practice/by-subject/distractor-tp-pp/").content.decode()

    assert "/practice/p/wide/" in page
    assert "/practice/p/deep/" in page
    assert "Secret title" not in page
    assert "/practice/p/deep/" not in client.get("/practice/by-subject/symptom-wide-layer/").content.decode()


def test_the_practice_page_links_every_subject_that_has_questions(tagged, client):
    page = client.get("/practice/").content.decode()

    assert "/practice/by-subject/symptom-wide-layer/" in page
    assert "/practice/by-subject/two-servers/" not in page
    assert (
        "No question of the bank is about this yet"
        in client.get("/practice/by-subject/two-servers/").content.decode()
    )
    assert client.get("/practice/by-subject/nothing/").status_code == 404


def test_there_are_six_symptoms_four_distractors_five_checks_and_the_two_servers():
    groups = [subject.group for subject in SUBJECTS.values()]

    assert [groups.count(group) for group in dict.fromkeys(groups)] == [6, 4, 5, 1]
