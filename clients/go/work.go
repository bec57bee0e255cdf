package herald

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// troubles count what has failed since a batch was handled last, also across connections.
type troubles struct {
	tally   // at a batch
	atState tally
	suspect *Notification
}

type tally struct {
	failures int // attempts that have failed
	breaks   int // attempts in which the work connection has ended
}

// guarded is the transaction that the user's functions get: the consumer ends it.
type guarded struct{ pgx.Tx }

var errGuarded = errors.New("herald: the consumer itself ends this transaction, together with the position")

// Commit fails.
func (guarded) Commit(context.Context) error { return errGuarded }

// Rollback fails; so a deferred one is harmless.
func (guarded) Rollback(context.Context) error { return errGuarded }

func guard(tx pgx.Tx) pgx.Tx {
	if tx == nil {
		return nil
	}
	return guarded{tx}
}

// statement does something in the work connection, with a deadline, after which the connection is left.
func (r *run) statement(parent context.Context, do func(ctx context.Context) error) error {
	return r.using(parent, r.config.WorkTimeout, do)
}

// quick is a statement that has to wait for nothing.
func (r *run) quick(parent context.Context, do func(ctx context.Context) error) error {
	return r.using(parent, min(r.config.WorkTimeout, max(2*r.config.Heartbeat, quickMin)), do)
}

func (r *run) using(parent context.Context, limit time.Duration, do func(ctx context.Context) error) error {
	return limited(parent, limit, func(ctx context.Context) error {
		// Whatever waits for the connection, and with which context.
		defer context.AfterFunc(ctx, r.work.wire.sever)()
		err := do(ctx)
		if err == nil {
			r.usedAt = time.Now()
		}
		return err
	})
}

// limited does something with a deadline. The error of the deadline is in the one returned.
func limited(parent context.Context, limit time.Duration, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(parent, limit)
	defer cancel()
	err := do(ctx)
	if err == nil || ctx.Err() == nil {
		return err
	}
	if parent.Err() != nil {
		return errStopped
	}
	return fmt.Errorf("not within %s: %w", limit, errors.Join(err, context.DeadlineExceeded))
}

// users calls the user's functions, with a deadline, also when the consumer is to stop, or the listening connection breaks. The lock
// is free after the deadline, also if they do not return.
func (r *run) users(do func(ctx context.Context) error) error {
	ctx := context.WithoutCancel(r.ctx)
	if r.config.Shared {
		return limited(ctx, r.config.WorkTimeout, do)
	}
	return r.statement(ctx, do)
}

// consume handles what a listener receives, until a connection breaks or the consumer stops.
func (r *run) consume(l *listener) error {
	select {
	case <-l.listening:
	case <-l.ended.Done(): // it has failed, perhaps only now
		_, _, err := l.inbox.take()
		select {
		case <-l.listening:
			r.started = true
		default:
		}
		return err
	case <-r.ctx.Done():
		return errStopped
	}
	r.started = true
	if !l.resumed {
		if err := r.readState(l); err != nil {
			return err
		}
	}
	r.emit(Event{Name: Listening, Server: l.link.server, Resumed: l.resumed, Stock: l.stock})
	for {
		next, err := r.next(r.ctx, l)
		if err != nil {
			return err
		}
		if len(next.notifications) > 0 {
			err = r.handleChunk(l, next)
		} else {
			err = r.advance(next.position)
		}
		if err != nil {
			return err
		}
	}
}

// next waits for something to handle, or a position. Meanwhile it looks after the work connection.
func (r *run) next(ctx context.Context, l *listener) (chunk, error) {
	for {
		if ctx.Err() != nil {
			return chunk{}, errStopped
		}
		next, ok, err := l.inbox.take()
		if l.inbox.beaten() {
			r.retries = 0
		}
		if ok || err != nil {
			return next, err
		}
		idle := time.NewTimer(time.Until(r.usedAt.Add(r.config.Heartbeat)))
		select {
		case <-l.inbox.ready:
		case <-ctx.Done():
		case <-idle.C:
			err = r.ping(ctx, l)
		}
		idle.Stop()
		if err != nil && l.ended.Err() == nil {
			return chunk{}, err
		}
	}
}

// ping finds out whether the work connection is there. It ends early if the listener does.
func (r *run) ping(ctx context.Context, l *listener) error {
	if r.work == nil {
		r.usedAt = time.Now()
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.ended, cancel)()
	return r.quick(ctx, func(ctx context.Context) error { return lost(r.work.Ping(ctx)) })
}

// save stores a position; nothing if it is empty, as from a stock server, but the consumer must be active still.
func (r *run) save(ctx context.Context, db database, position string) error {
	switch {
	case r.config.Shared:
		return nil
	case r.config.Store == nil:
		err := r.table.save(ctx, db, position, r.epoch)
		if strings.HasPrefix(sqlstate(err), classRollback) {
			return err // a conflict of the transaction, found only here
		}
		return storeError(err, r.broken())
	case position == "":
		return nil
	}
	return ownStoreError(r.config.Store.Save(ctx, position))
}

// saved notes that it is stored.
func (r *run) saved(position string) {
	if position != "" {
		r.position, r.storedAt = position, time.Now()
	}
}

// advance stores a position before which there is nothing to handle, if the last one is old.
func (r *run) advance(position string) error {
	switch {
	case r.config.Shared:
		r.position = position
		return nil
	case position == r.position || time.Since(r.storedAt) < idleStore:
		return nil
	}
	err := r.statement(r.ctx, func(ctx context.Context) error { return r.save(ctx, r.work, position) })
	if err == nil {
		r.saved(position)
	}
	return err
}

// readState calls the user's function, and stores the first position of the listening connection with it.
func (r *run) readState(l *listener) error {
	reason := Gone
	if l.stock {
		reason = Stock
	} else if r.position == "" {
		reason = FirstStart
	}
	position, err := r.firstPosition(l)
	if err != nil {
		return err
	}
	r.emit(Event{Name: ReadingState, Reason: reason})
	r.suspect = nil
	for {
		err := r.transaction(func(ctx context.Context, tx pgx.Tx) error {
			if r.config.State != nil {
				if err := r.config.State(ctx, guard(tx), reason); err != nil {
					return err
				}
			}
			return r.commit(ctx, tx, position)
		})
		if err == nil {
			r.atState = tally{}
			r.saved(position)
			return nil
		}
		if errors.Is(err, errSuperseded) || errors.Is(err, ErrStore) || l.ended.Err() != nil {
			return err
		}
		if end := r.judge(fmt.Errorf("state (%s): %w", reason, err), &r.atState, r.config.Attempts); end != nil {
			return end
		}
		if r.broken() {
			return err
		}
		if err := sleep(r.ctx, r.config.Backoff.pause(r.atState.failures-1)); err != nil {
			return err
		}
	}
}

// firstPosition waits for it, for a heartbeat. It is empty where there is none, or if a notification comes before it: then the
// state is read again if a connection breaks before that is handled.
func (r *run) firstPosition(l *listener) (string, error) {
	late := time.NewTimer(r.config.Heartbeat)
	defer late.Stop()
	for !l.stock {
		position, ok, err := l.inbox.firstPosition()
		if ok || err != nil {
			return position, err
		}
		select {
		case <-l.inbox.ready:
		case <-late.C:
			return "", nil
		case <-r.ctx.Done():
			return "", errStopped
		}
	}
	return "", nil
}

// transactional returns whether the user's functions get a transaction.
func (r *run) transactional() bool {
	return !r.config.Shared && r.config.Store == nil
}

// broken returns whether the work connection has ended.
func (r *run) broken() bool {
	return r.work != nil && (r.work.IsClosed() || r.work.wire.isLeft())
}

// transaction does something in a transaction, if there are any, with a deadline, also when the consumer is to stop. It does not
// commit.
func (r *run) transaction(do func(ctx context.Context, tx pgx.Tx) error) error {
	var tx pgx.Tx
	err := r.users(func(ctx context.Context) error {
		err := r.begin(ctx, &tx)
		if err == nil {
			err = do(ctx, tx)
		}
		return err
	})
	r.rollBack(tx, err)
	return err
}

func (r *run) begin(ctx context.Context, tx *pgx.Tx) error {
	if !r.transactional() || *tx != nil {
		return nil
	}
	begun, err := r.work.Begin(ctx)
	if err == nil {
		*tx = begun
	}
	return err
}

// rollBack ends the transaction after an error. If that does not work, the connection is closed.
func (r *run) rollBack(tx pgx.Tx, after error) {
	if tx == nil || after == nil || r.broken() {
		return
	}
	_ = r.statement(context.WithoutCancel(r.ctx), tx.Rollback)
}

// commit stores the position, and commits.
func (r *run) commit(ctx context.Context, tx pgx.Tx, position string) error {
	if r.broken() {
		return lost(net.ErrClosed) // so the lock is, too
	}
	if err := usable(tx); err != nil {
		return err
	}
	if err := r.save(ctx, tx, position); err != nil || tx == nil {
		return err
	}
	return tx.Commit(ctx)
}

// usable returns an error if a statement in the transaction has failed, and the user's function has not returned that, or if
// the function has ended the transaction, by a statement of its own.
func usable(tx pgx.Tx) error {
	if tx == nil {
		return nil
	}
	switch tx.Conn().PgConn().TxStatus() {
	case 'T':
		return nil
	case 'E':
		return errors.New("herald: a statement in the transaction has failed, and no error was returned")
	}
	return errors.New("herald: the transaction was ended, which only the consumer may do")
}

// handleChunk handles a batch, whose first or only part is given: again and again, until it is handled, the
// connection breaks, or the consumer ends.
func (r *run) handleChunk(l *listener, first chunk) error {
	if !r.transactional() {
		if err := r.ping(r.ctx, l); err != nil {
			return err // without the lock, another instance may handle it
		}
	}
	for {
		r.suspect = nil
		count, position, err := r.try(l, first)
		if err == nil {
			r.troubles = troubles{}
			r.retries = 0
			r.saved(position)
			r.emit(Event{Name: Handled, Count: count, Position: position})
			return nil
		}
		var failed *attemptError
		if !errors.As(err, &failed) {
			return err
		}
		if end := r.judge(failed.error, &r.tally, 2*r.config.Attempts); end != nil {
			return end
		}
		if r.broken() || !first.complete && r.transactional() {
			return err // the first parts of a large transaction must be received again
		}
		if err := sleep(r.ctx, r.config.Backoff.pause(r.failures-1)); err != nil {
			return err
		}
	}
}

// judge counts a failed attempt. It returns nil if there may be another one.
func (r *run) judge(cause error, count *tally, most int) error {
	var final *HandlerError
	if errors.As(cause, &final) {
		return final
	}
	if r.broken() {
		count.breaks++
	}
	if !r.broken() || errors.Is(cause, context.DeadlineExceeded) {
		count.failures++
	}
	if count.failures >= most || count.breaks >= 2*r.config.Attempts {
		return &HandlerError{Notification: r.suspect, Err: cause}
	}
	if r.ctx.Err() != nil {
		return errStopped
	}
	r.emit(Event{Name: Failing, Err: cause, Attempt: max(count.failures, count.breaks)})
	return nil
}

// attemptError is an error of an attempt at a batch since the user's function was called, and not of the store; other ones have
// nothing to do with it.
type attemptError struct{ error }

// Unwrap returns the error itself.
func (e *attemptError) Unwrap() error { return e.error }

// try handles a batch once. It returns how many notifications that were, and their position.
func (r *run) try(l *listener, part chunk) (count int, position string, err error) {
	var tx pgx.Tx
	defer func() { r.rollBack(tx, err) }()
	for {
		called := false
		err = r.users(func(ctx context.Context) error {
			if err := r.begin(ctx, &tx); err != nil {
				return err
			}
			called = true
			return r.handlePart(ctx, tx, part)
		})
		if err != nil {
			if called && l.ended.Err() == nil && !errors.Is(err, errSuperseded) && !errors.Is(err, ErrStore) {
				err = &attemptError{err}
			}
			return 0, "", err
		}
		count += len(part.notifications)
		if part.complete || tx == nil {
			return count, part.position, nil
		}
		// The batch is finished also when the consumer is to stop.
		if part, err = r.next(context.WithoutCancel(r.ctx), l); err != nil {
			return 0, "", err
		}
	}
}

// handlePart handles a part of a batch, and commits with the last one.
func (r *run) handlePart(ctx context.Context, tx pgx.Tx, part chunk) error {
	if len(part.notifications) > 0 {
		handle := r.handleAll
		if r.failures >= r.config.Attempts {
			handle = r.handleOneByOne
		} else if len(part.notifications) == 1 {
			r.suspect = &part.notifications[0]
		}
		if err := handle(ctx, tx, part.notifications); err != nil {
			return err
		}
	}
	if !part.complete {
		return nil
	}
	return r.commit(ctx, tx, part.position)
}

func (r *run) handleAll(ctx context.Context, tx pgx.Tx, notifications []Notification) error {
	if err := r.config.Handle(ctx, guard(tx), slices.Clone(notifications)); err != nil {
		return err
	}
	return usable(tx)
}

// handleOneByOne handles each notification behind a savepoint, and asks what to do with those that fail: unless something else
// is wrong, as the connection, the moment, or the transaction.
func (r *run) handleOneByOne(ctx context.Context, tx pgx.Tx, notifications []Notification) error {
	for _, notification := range notifications {
		r.suspect = &notification
		err := r.handleOne(ctx, tx, notification)
		if err == nil {
			continue
		}
		if ctx.Err() != nil || r.broken() || passes(err) || usable(tx) != nil {
			return err
		}
		if err := r.decide(ctx, tx, notification, err); err != nil {
			return err
		}
	}
	r.suspect = nil
	return nil
}

func (r *run) handleOne(ctx context.Context, tx pgx.Tx, notification Notification) error {
	if tx == nil {
		return r.handleAll(ctx, nil, []Notification{notification})
	}
	savepoint, err := tx.Begin(ctx)
	if err != nil {
		return err
	}
	if err = r.handleAll(ctx, savepoint, []Notification{notification}); err == nil {
		return savepoint.Commit(ctx)
	}
	if !r.broken() {
		_ = savepoint.Rollback(ctx) // if that fails, the transaction is not usable
	}
	return err
}

// decide asks the user about a notification that has failed.
func (r *run) decide(ctx context.Context, tx pgx.Tx, notification Notification, cause error) error {
	decision := Stop
	if r.config.Poison != nil {
		var err error
		if decision, err = r.config.Poison(ctx, guard(tx), notification, cause); err != nil {
			return fmt.Errorf("Poison: %w", err)
		}
	}
	r.emit(Event{Name: Poisoned, Channel: notification.Channel, Payload: notification.Payload, Err: cause, Decision: decision})
	if decision == Skip {
		return nil
	}
	return &HandlerError{Notification: &notification, Err: cause}
}
