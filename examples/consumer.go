// Writes one bill for each order, also when the connection breaks. PGHOST, PGDATABASE, ... say where.
package main

import (
	"context"
	"log"

	"github.com/jackc/pgx/v5"

	herald "pg-herald.invalid/pg_herald/clients/go"
)

// handle does what these notifications ask for.
func handle(ctx context.Context, tx pgx.Tx, batch []herald.Notification) error {
	for _, notification := range batch {
		if _, err := tx.Exec(ctx, "INSERT INTO bill VALUES ($1) ON CONFLICT DO NOTHING", notification.Payload); err != nil {
			return err
		}
	}
	return nil
}

// state is for the first start, or when something is gone: do what is left to do.
func state(ctx context.Context, tx pgx.Tx, _ herald.Reason) error {
	_, err := tx.Exec(ctx, "INSERT INTO bill SELECT id FROM orders ORDER BY id ON CONFLICT DO NOTHING")
	return err
}

func main() {
	ctx := context.Background()
	consumer, err := herald.New(herald.Config{Name: "billing", Channels: []string{"orders"}, Handle: handle, State: state})
	if err == nil {
		err = consumer.CreateStore(ctx)
	}
	if err == nil {
		err = consumer.Run(ctx)
	}
	log.Fatal(err)
}
