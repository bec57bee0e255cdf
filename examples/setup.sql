-- Each new order is notified of on channel orders, and gets one bill.
CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item text NOT NULL);

CREATE FUNCTION orders_notify() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_notify('orders', NEW.id::text);
	RETURN NULL;
END
$$;
CREATE TRIGGER orders_notify AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION orders_notify();

CREATE TABLE bill (order_id bigint PRIMARY KEY);
