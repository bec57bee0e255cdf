NOTIFY channel_:client_id;
