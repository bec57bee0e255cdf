NOTIFY channel_1;
