LISTEN channel_1;
SELECT * FROM locked;
