\set channel random(0, 99999)
NOTIFY channel_:channel;
