package herald

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// The causes for which [New] and [Consumer.Run] fail: compare with [errors.Is]. The driver's error, if there is one, is
// found by [errors.As].
var (
	ErrConfiguration    = errors.New("herald: wrong configuration")
	ErrUnreachable      = errors.New("herald: no server is reachable")
	ErrAuthentication   = errors.New("herald: the server refuses the login")
	ErrDatabaseMissing  = errors.New("herald: the database does not exist")
	ErrStore            = errors.New("herald: the store of the position cannot be used")
	ErrExtensionMissing = errors.New("herald: the database does not have the extension pg_herald")
	ErrStockServer      = errors.New("herald: the server does not have pg_herald")
	ErrHandler          = errors.New("herald: a notification cannot be handled")
)

// HandlerError is the end of a consumer whose handler, or state, fails too often, or for which [Config.Poison] has returned
// [Stop]. It is an [ErrHandler].
type HandlerError struct {
	Notification *Notification // nil if it is not known which one it is
	Err          error         // the last error
}

// Error describes the notification, without its payload, and the cause.
func (e *HandlerError) Error() string {
	if e.Notification == nil {
		return fmt.Sprintf("%v: %v", ErrHandler, e.Err)
	}
	return fmt.Sprintf("%v: on channel %q: %v", ErrHandler, e.Notification.Channel, e.Err)
}

// Unwrap returns ErrHandler and the cause.
func (e *HandlerError) Unwrap() []error { return []error{ErrHandler, e.Err} }

// Within the package.
var (
	errSuperseded = errors.New("another instance has become active")
	errStopped    = errors.New("stopped")
	errStandby    = errors.New("a standby has only channels that are logged, and a stock one has none")
)

// SQLSTATEs.
const (
	codeReadOnly      = "25006"
	codeNoDatabase    = "3D000"
	codeNoPrivilege   = "42501"
	codeNoPosition    = "22023"
	codeNotSupported  = "0A000"
	codeSerialization = "40001"
	codeUnique        = "23505"
	codeTableExists   = "42P07"
	codeLockTimeout   = "55P03"
	classLogin        = "28"
	classRollback     = "40"
)

// Of errors that a server makes in a moment in which no notification could be handled, and that are over at another one: connections,
// conflicts of transactions, resources, operators, the system.
var passingClasses = []string{"08", classRollback, "53", "57P", "58"}

// state returns the SQLSTATE of a server's error, or an empty string.
func sqlstate(err error) string {
	var fromServer *pgconn.PgError
	if errors.As(err, &fromServer) {
		return fromServer.Code
	}
	return ""
}

// passes returns whether it is an error that is over at another moment: no notification is the cause.
func passes(err error) bool {
	code := sqlstate(err)
	return code == codeReadOnly || code == codeLockTimeout ||
		slices.ContainsFunc(passingClasses, func(class string) bool { return strings.HasPrefix(code, class) })
}

// connectError says why a connection could not be made.
func connectError(err error) error {
	code := sqlstate(err)
	switch {
	case strings.HasPrefix(code, classLogin), code == codeNoPrivilege:
		return fmt.Errorf("%w: %w", ErrAuthentication, err)
	case code == codeNoDatabase:
		return fmt.Errorf("%w: %w", ErrDatabaseMissing, err)
	case errors.Is(err, pgconn.ErrReadOnlyConnection):
		return fmt.Errorf("%w that accepts writing: %w", ErrUnreachable, err)
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, err)
}

// listenError says why a session could not listen.
func listenError(err error) error {
	switch sqlstate(err) {
	case codeReadOnly:
		return fmt.Errorf("%w: %w", errStandby, err)
	case codeNoPosition:
		return fmt.Errorf("%w: %w", ErrStore, err)
	case codeNoPrivilege, codeNotSupported:
		return fmt.Errorf("%w: %w", ErrConfiguration, err)
	}
	return lost(err)
}

// atStart gives an error of the start its cause. One without is the server's, which refuses what every server can do.
func atStart(err error) error {
	for _, cause := range []error{
		ErrConfiguration, ErrUnreachable, ErrAuthentication, ErrDatabaseMissing, ErrStore, ErrExtensionMissing, ErrStockServer,
	} {
		if errors.Is(err, cause) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, err)
}

// storeError is for a statement on the table: if the server has refused it, the table is the cause.
func storeError(err error, connectionEnded bool) error {
	if sqlstate(err) != "" && !connectionEnded {
		return fmt.Errorf("%w: %w", ErrStore, err)
	}
	return lost(err)
}

// ownStoreError is for a store of the user's own.
func ownStoreError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrStore, err)
}

// lost is for an error of a connection that was there; a server's own error is left as it is.
func lost(err error) error {
	if err == nil || errors.Is(err, errSuperseded) || errors.Is(err, errStopped) {
		return err
	}
	if sqlstate(err) != "" && !strings.HasPrefix(sqlstate(err), "57P") {
		return err
	}
	return fmt.Errorf("%w any more: %w", ErrUnreachable, err)
}
