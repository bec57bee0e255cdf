package herald

import (
	"net"
	"os"
	"sync"
	"time"
)

// wire is a network connection that can be left at once, whatever state it is in, and that limits the silence while it is
// read. pgx knows a context for each of its calls only, whose end it answers by a request to cancel; and it starts a goroutine
// for each.
type wire struct {
	net.Conn

	mu      sync.Mutex
	silence time.Duration // that a Read waits at most; 0: pgx sets the deadlines
	left    bool
}

// limit sets the longest silence. 0: none.
func (w *wire) limit(silence time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silence = silence
}

// leave ends whatever reads and writes, with a timeout, and each later attempt.
func (w *wire) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left = true
	_ = w.Conn.SetDeadline(time.Unix(1, 0))
}

// sever leaves it for the other side, too, also while the one that uses it does something else. Not by the farewell of TLS, which
// may have to wait.
func (w *wire) sever() {
	w.leave()
	raw := w.Conn
	if secured, ok := raw.(interface{ NetConn() net.Conn }); ok {
		raw = secured.NetConn()
	}
	_ = raw.Close()
}

// isLeft returns whether it was left.
func (w *wire) isLeft() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.left
}

// bid allows to write a last message.
func (w *wire) bid(timeout time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left, w.silence = false, 0
	_ = w.Conn.SetDeadline(time.Now().Add(timeout))
}

// Read reads, as long as the silence may last.
func (w *wire) Read(buffer []byte) (int, error) {
	w.mu.Lock()
	switch {
	case w.left:
		w.mu.Unlock()
		return 0, os.ErrDeadlineExceeded
	case w.silence > 0:
		if err := w.Conn.SetReadDeadline(time.Now().Add(w.silence)); err != nil {
			w.mu.Unlock()
			return 0, err
		}
	}
	w.mu.Unlock()
	return w.Conn.Read(buffer)
}

// SetDeadline is for pgx, which must not undo leave.
func (w *wire) SetDeadline(deadline time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left {
		return nil
	}
	return w.Conn.SetDeadline(deadline)
}
