\set number :number + 1
NOTIFY channel_1, ':client_id.:number';
