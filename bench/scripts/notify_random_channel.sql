\set channel random(0, 69999)
NOTIFY channel_:channel;
