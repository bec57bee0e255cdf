package herald

import "sync"

// chunk is a batch, or a part of one.
type chunk struct {
	notifications []Notification
	position      string // of a complete one, if the server has pg_herald
	complete      bool   // false: more of its last transaction is to come
}

// inbox has what was received and is not in work. Its limit is a batch: a receiver that brings more waits, and so
// does not read from its connection.
type inbox struct {
	limit int
	cuts  bool // it may be cut anywhere: there are no positions

	mu            sync.Mutex
	notifications []Notification
	upTo          int    // so many of them are before position
	position      string // the newest one; empty: none has come since the last chunk was taken
	stood         bool   // one has come at all
	first         string // that one, if no notification came before it
	beat          bool   // the server has shown that it is alive, after the first position
	err           error  // nothing more comes

	ready chan struct{} // has one when there may be something to take
	room  chan struct{} // has one when there may be room
}

func newInbox(limit int, cuts bool) *inbox {
	return &inbox{limit: limit, cuts: cuts, ready: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

// put adds a notification. It waits for room, and does nothing after the end.
func (i *inbox) put(notification Notification) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for len(i.notifications) >= i.limit && i.err == nil {
		i.mu.Unlock()
		<-i.room
		i.mu.Lock()
	}
	if i.err != nil {
		return
	}
	i.notifications = append(i.notifications, notification)
	if i.cuts || !i.stood || len(i.notifications) >= i.limit {
		signal(i.ready)
	}
}

// stand adds a position: it stands for all that was put before.
func (i *inbox) stand(position string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.stood && len(i.notifications) == 0 {
		i.first = position
	}
	i.beat = i.beat || i.stood
	i.stood = true
	i.position, i.upTo = position, len(i.notifications)
	signal(i.ready)
}

// live notes that the server has answered.
func (i *inbox) live() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.beat = true
	signal(i.ready)
}

// end notes that nothing more comes, and why. The first reason counts.
func (i *inbox) end(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.err == nil {
		i.err = err
	}
	signal(i.ready)
	signal(i.room)
}

// take returns what can be handled. False: nothing yet, wait for ready.
func (i *inbox) take() (chunk, bool, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.err != nil {
		return chunk{}, false, i.err
	}
	taken := chunk{complete: true}
	switch {
	case i.position != "":
		taken.position = i.position
		taken.notifications = i.cut(i.upTo)
		i.position = ""
	case i.cuts && len(i.notifications) > 0:
		taken.notifications = i.cut(len(i.notifications))
	case len(i.notifications) >= i.limit:
		taken.notifications = i.cut(len(i.notifications))
		taken.complete = false
	default:
		return chunk{}, false, nil
	}
	signal(i.room)
	if len(i.notifications) > 0 {
		signal(i.ready)
	}
	return taken, true, nil
}

// firstPosition returns the first position that came; an empty one if a notification comes before it, which is not handled
// when that position is stored. False: neither yet, wait for ready.
func (i *inbox) firstPosition() (string, bool, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	come := i.first != "" || len(i.notifications) > 0
	if come {
		signal(i.ready) // these remain to be taken
	}
	return i.first, come, i.err
}

// stands returns whether a position has come.
func (i *inbox) stands() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.stood
}

// beaten returns whether the server has shown that it is alive, since the last call.
func (i *inbox) beaten() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	beat := i.beat
	i.beat = false
	return beat
}

// cut removes the first n notifications. The rest is copied, so that what is taken is free when it is handled.
func (i *inbox) cut(n int) []Notification {
	taken := i.notifications[:n:n]
	i.notifications = append([]Notification(nil), i.notifications[n:]...)
	return taken
}

func signal(channel chan struct{}) {
	select {
	case channel <- struct{}{}:
	default:
	}
}
