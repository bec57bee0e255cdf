-- Each new order is notified of on channel orders, and gets one bill.
CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item text NOT NULL);

CREATE FUNCTION orders_notify() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_notify('orders', NEW.id::text);
	RETURN NULL;
END
$$;
CREATE TRIGGER orders_notify AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION orders_notify();

-- What the consumer makes, and the position up to which it has done so: one row.
CREATE TABLE bill (order_id bigint PRIMARY KEY);
CREATE TABLE progress (position text);
INSERT INTO progress VALUES (NULL);
