CREATE TABLE sales (day date NOT NULL, product text NOT NULL, amount integer NOT NULL);
CREATE TABLE report (day date PRIMARY KEY, products integer NOT NULL, amount bigint NOT NULL);
INSERT INTO sales
SELECT current_date - 1, 'product ' || n % 3, n FROM generate_series(1, 100) n;
