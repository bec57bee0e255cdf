// Writes one bill for each order, also when the connection breaks. PGHOST, PGDATABASE, ... say where.
package main

import (
	"context"
	"log"
	"math/rand"
	"time"

	"github.com/jackc/pgx/v5"
)

// readState is for the first start, or when something is gone: do what is left to do.
func readState(ctx context.Context, connection *pgx.Conn) error {
	_, err := connection.Exec(ctx, "INSERT INTO bill SELECT id FROM orders ORDER BY id ON CONFLICT DO NOTHING")
	return err
}

// handle does what one notification asks for.
func handle(ctx context.Context, tx pgx.Tx, payload string) error {
	_, err := tx.Exec(ctx, "INSERT INTO bill VALUES ($1) ON CONFLICT DO NOTHING", payload)
	return err
}

// consume listens until the connection breaks.
func consume(ctx context.Context) error {
	connection, err := pgx.Connect(ctx, "")
	if err != nil {
		return err
	}
	defer connection.Close(ctx)
	var complete bool
	err = pgx.BeginFunc(ctx, connection, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "LISTEN herald_position"); err != nil {
			return err
		}
		return tx.QueryRow(ctx, "SELECT herald.listen('orders', after => (SELECT position FROM progress FOR UPDATE)) IS TRUE").
			Scan(&complete)
	})
	if err == nil && !complete {
		err = readState(ctx, connection)
	}
	var payloads []string
	for err == nil {
		notification, failed := connection.WaitForNotification(ctx)
		if failed != nil {
			return failed
		}
		if notification.Channel != "herald_position" {
			payloads = append(payloads, notification.Payload)
			continue
		}
		// The work and its position: both are stored, or none.
		err = pgx.BeginFunc(ctx, connection, func(tx pgx.Tx) error {
			for _, payload := range payloads {
				if err := handle(ctx, tx, payload); err != nil {
					return err
				}
			}
			_, err := tx.Exec(ctx, "UPDATE progress SET position = $1", notification.Payload)
			return err
		})
		payloads = nil
	}
	return err
}

func main() {
	for {
		log.Print(consume(context.Background()))
		time.Sleep(time.Duration(rand.Int63n(int64(time.Second)))) // so that not all consumers come back at once
	}
}
