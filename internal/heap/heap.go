// Package heap is a binary heap whose elements may know their places in it.
package heap

// Heap has the element that goes before all others at its top. The zero Heap has no
// order; see New.
type Heap[T any] struct {
	items  []T
	before func(a, b T) bool
	moved  func(T, int)
}

// New returns an empty heap. moved, unless it is nil, is called with each place that an
// element gets.
func New[T any](before func(a, b T) bool, moved func(T, int)) *Heap[T] {
	if moved == nil {
		moved = func(T, int) {}
	}
	return &Heap[T]{before: before, moved: moved}
}

// Len returns the number of elements.
func (h *Heap[T]) Len() int { return len(h.items) }

// Items returns the elements, in no order but that the first one is the top. The caller
// must not change them.
func (h *Heap[T]) Items() []T { return h.items }

// Top returns the first element; the zero T if there is none.
func (h *Heap[T]) Top() (top T) {
	if len(h.items) > 0 {
		top = h.items[0]
	}
	return top
}

// Push adds an element.
func (h *Heap[T]) Push(x T) {
	h.items = append(h.items, x)
	h.up(len(h.items)-1, x)
}

// Pop takes the top out.
func (h *Heap[T]) Pop() T {
	top := h.items[0]
	h.Remove(0)
	return top
}

// Remove takes out the element at a place.
func (h *Heap[T]) Remove(i int) {
	var none T
	last := len(h.items) - 1
	x := h.items[last]
	h.items[last] = none
	h.items = h.items[:last]
	if i < last {
		h.fix(i, x)
	}
}

// Fix puts the element at a place where it belongs after its order has changed.
func (h *Heap[T]) Fix(i int) { h.fix(i, h.items[i]) }

func (h *Heap[T]) fix(i int, x T) {
	if h.up(i, x) == i {
		h.down(i, x)
	}
}

func (h *Heap[T]) put(i int, x T) {
	h.items[i] = x
	h.moved(x, i)
}

func (h *Heap[T]) up(i int, x T) int {
	for i > 0 {
		parent := (i - 1) / 2
		if !h.before(x, h.items[parent]) {
			break
		}
		h.put(i, h.items[parent])
		i = parent
	}
	h.put(i, x)
	return i
}

func (h *Heap[T]) down(i int, x T) {
	for {
		child := 2*i + 1
		if child >= len(h.items) {
			break
		}
		if child+1 < len(h.items) && h.before(h.items[child+1], h.items[child]) {
			child++
		}
		if !h.before(h.items[child], x) {
			break
		}
		h.put(i, h.items[child])
		i = child
	}
	h.put(i, x)
}
