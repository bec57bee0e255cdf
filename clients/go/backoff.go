package herald

import (
	"context"
	"math/rand/v2"
	"time"
)

// limit is the longest pause before attempt n.
func (b Backoff) limit(n int) time.Duration {
	pause := b.First
	for ; n > 0 && pause < b.Max; n-- {
		pause *= 2
	}
	return min(pause, b.Max)
}

// pause is the pause before attempt n. It is at random, so that clients that were disconnected together do not come
// back together.
func (b Backoff) pause(n int) time.Duration {
	return rand.N(b.limit(n) + 1)
}

// sleep returns errStopped if the context ends before the time is over.
func sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return errStopped
	}
}
