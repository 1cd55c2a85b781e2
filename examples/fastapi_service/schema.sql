CREATE TABLE orders (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    item text NOT NULL,
    amount integer NOT NULL,
    receipt_sent_at timestamptz
);
