"""A module that handles LISTEN itself, or replaces the channel (test/modules/statement_filter)."""

import psycopg
import pytest

from c_api import built
from resume import position, resume
from support import hear, notify

pytestmark = pytest.mark.seam


@pytest.fixture(scope="module")
def module():
    with built("statement_filter") as path:
        yield path


@pytest.mark.parametrize("before", ["SELECT 1", "LISTEN c", "UNLISTEN other"])
@pytest.mark.parametrize("channel", ["refused", "renamed"])
def test_listen_is_answered_by_another_module(cluster, connect, module, channel, before):
    """Guards: if another module has handled the LISTEN of herald.listen(), the function fails, and a position for one
    channel is not used for another."""
    session, sender = connect(cluster), connect(cluster)
    session.execute(f"LOAD '{module}'")
    token = position(sender)
    for name in ("c", "other", channel):
        notify(sender, name, "before")
    for after in (token, None):
        with session.transaction():
            session.execute(before)
            with pytest.raises(psycopg.errors.FeatureNotSupported, match=f'could not listen to channel "{channel}"'):
                with session.transaction():
                    resume(session, channel, after)
    assert resume(session, "c", token)
    notify(sender, "other", "not heard")
    notify(sender, "c", "after")
    assert hear(session, 2) == ["before", "after"]
