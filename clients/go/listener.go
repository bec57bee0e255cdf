package herald

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const positionChannel = ownPrefix + "position"

// never is the context of what the listening connection does: its wire limits the time.
var never = context.Background()

// listener is a listening connection. A goroutine of its own listens, and brings what comes to the inbox. No
// other one uses the connection meanwhile.
type listener struct {
	config Config
	link   *link
	inbox  *inbox
	stock  bool // the server has no pg_herald
	asked  bool // all that makes the session listen, but for COMMIT; for the goroutine that reads

	resumed   bool          // nothing is missing; valid when the session listens
	listening chan struct{} // closed when it does
	once      sync.Once     // for that
	begun     bool          // the goroutine is there, or has been

	stopping context.Context // ends when the goroutine is to end
	stopNow  context.CancelFunc
	ended    context.Context // ends when it has ended
	end      context.CancelFunc
}

// openListener connects, to the primary if so wished, and looks which kind of server that is.
func (c *Consumer) openListener(ctx context.Context, onPrimary bool) (*listener, error) {
	l := &listener{config: c.config, listening: make(chan struct{})}
	l.stopping, l.stopNow = context.WithCancel(context.Background())
	l.ended, l.end = context.WithCancel(context.Background())
	config := c.listeningConfig
	if onPrimary {
		config = config.Copy()
		config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	var err error
	if l.link, err = c.connect(ctx, config, l.notified); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, c.config.WorkTimeout)
	defer cancel()
	if l.stock, err = c.inspect(limited, l.link); err != nil {
		l.link.end()
		return nil, err
	}
	l.inbox = newInbox(c.config.Batch, l.stock)
	return l, nil
}

// start begins to listen: after the position, or without one from now on.
func (l *listener) start(position string) {
	l.begun = true
	l.link.wire.limit(l.config.WorkTimeout)
	go func() {
		defer l.end()
		err := l.listen(position)
		if err != nil {
			err = listenError(err)
		} else {
			l.hears()
			l.limitSilence()
			err = lost(l.receive())
		}
		l.inbox.end(err)
	}()
}

// stop ends the connection, and waits for the goroutine, not for the server. What is in the inbox is forgotten.
func (l *listener) stop() {
	l.stopNow()
	l.inbox.end(errStopped)
	if l.begun {
		l.link.wire.leave()
		<-l.ended.Done()
	}
	l.link.end()
}

// notified is called by pgx, while it reads, with each notification. The first one may come before the answer to COMMIT. What comes
// before COMMIT is asked for is for an earlier client of the session, behind a pooler.
func (l *listener) notified(_ *pgconn.PgConn, n *pgconn.Notification) {
	if !l.asked {
		return
	}
	l.hears()
	if n.Channel == positionChannel {
		l.inbox.stand(n.Payload)
	} else {
		l.inbox.put(Notification{Channel: n.Channel, Payload: n.Payload, PID: n.PID})
	}
}

// hears notes that the session listens.
func (l *listener) hears() {
	l.once.Do(func() { close(l.listening) })
}

// limitSilence begins when COMMIT is answered. Before, the server sends all that was missed, and no heartbeats, and may have to
// read for long.
func (l *listener) limitSilence() {
	if l.stock {
		l.link.wire.limit(l.config.Heartbeat)
	} else {
		l.link.wire.limit(2 * l.config.Heartbeat)
	}
}

// listen listens to all channels, in one transaction.
func (l *listener) listen(position string) error {
	for attempt := 0; ; attempt++ {
		l.asked = false
		err := pgx.BeginFunc(never, l.link, func(tx pgx.Tx) error {
			err := l.ask(tx, position)
			l.asked = err == nil
			return err
		})
		if sqlstate(err) != codeSerialization || attempt >= l.config.Attempts {
			return err // a standby asks for repeating it
		}
		if err := sleep(l.stopping, l.config.Backoff.pause(attempt)); err != nil {
			return err
		}
	}
}

func (l *listener) ask(tx pgx.Tx, position string) error {
	if l.stock {
		return l.askStock(tx)
	}
	var after *string
	if position != "" {
		after = &position
	}
	beat := fmt.Sprintf("SET herald.heartbeat = '%dms'", l.config.Heartbeat.Milliseconds())
	if _, err := tx.Exec(never, beat); err != nil {
		return err
	}
	if _, err := tx.Exec(never, "LISTEN "+positionChannel); err != nil {
		return err
	}
	return tx.QueryRow(never, `SELECT bool_and(herald.listen(channel, after => $2::text) IS TRUE)
		FROM unnest($1::text[]) AS channel`, l.config.Channels, after).Scan(&l.resumed)
}

func (l *listener) askStock(tx pgx.Tx) error {
	for _, channel := range l.config.Channels {
		if _, err := tx.Exec(never, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
			return err
		}
	}
	return nil
}

// receive reads until the connection ends, and returns why it has.
func (l *listener) receive() error {
	if l.stock {
		return l.receiveFromStock()
	}
	for {
		if err := l.link.PgConn().WaitForNotification(never); err != nil {
			return l.silent(err)
		}
	}
}

// receiveFromStock asks for a sign of life whenever nothing has come for a heartbeat.
func (l *listener) receiveFromStock() error {
	for {
		err := l.link.PgConn().WaitForNotification(never)
		if err != nil && isTimeout(err) && l.stopping.Err() == nil {
			_, err = l.link.PgConn().Exec(never, "SELECT 1").ReadAll()
			l.inbox.live()
		}
		if err != nil {
			return l.silent(err)
		}
	}
}

func (l *listener) silent(err error) error {
	if !isTimeout(err) {
		return err
	}
	if !l.stock && !l.inbox.stands() {
		return errors.New("no position has arrived within two heartbeats after LISTEN: does a pooler change sessions?")
	}
	return errors.New("nothing has arrived for two heartbeats")
}
