-- The position up to which a consumer without a client package has handled what came: one row.
CREATE TABLE progress (position text);
INSERT INTO progress VALUES (NULL);
