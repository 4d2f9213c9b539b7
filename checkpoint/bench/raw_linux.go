package bench

import (
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/evenkeel/evenkeel/checkpoint"
)

// raw is a file of which nothing is asked but speed: allocated beforehand, written in place.
type raw struct {
	file, direct *os.File
	bytes        int64
}

const (
	piece = 4 << 20
	page  = 4096
)

func newRaw(path string, bytes int64) (*raw, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	r := &raw{file: f, bytes: (bytes + page - 1) / page * page}
	if err := r.fill(path); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *raw) fill(path string) error {
	if err := unix.Fallocate(int(r.file.Fd()), 0, 0, r.bytes); err != nil {
		return err
	}
	zeros := make([]byte, piece)
	for at := int64(0); at < r.bytes; at += piece {
		if _, err := r.file.WriteAt(zeros[:min(piece, r.bytes-at)], at); err != nil {
			return err
		}
	}
	if err := r.file.Sync(); err != nil {
		return err
	}
	d, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		return err
	}
	r.direct = d
	return nil
}

func (r *raw) close() {
	r.file.Close()
	if r.direct != nil {
		r.direct.Close()
	}
}

// writes are the ways to write the arrays' bytes durably.
func (r *raw) writes(arrays []checkpoint.Array) map[string]func() error {
	buffered := func(hint bool) error {
		at := int64(0)
		for _, a := range arrays {
			if _, err := r.file.WriteAt(a.Data, at); err != nil {
				return err
			}
			if hint {
				if err := unix.SyncFileRange(int(r.file.Fd()), at, a.Len(), unix.SYNC_FILE_RANGE_WRITE); err != nil {
					return err
				}
			}
			at += a.Len()
		}
		return unix.Fdatasync(int(r.file.Fd()))
	}
	return map[string]func() error{
		"pwrite, write-back at once, fdatasync": func() error { return buffered(true) },
		"pwrite, fdatasync":                     func() error { return buffered(false) },
		"pwrite, 4 at a time, the same":         func() error { return r.parallel(arrays) },
		"direct, depth 2":                       func() error { return r.pieces(arrays, 2, true) },
		"direct, depth 4":                       func() error { return r.pieces(arrays, 4, true) },
	}
}

// reads are the ways to read the arrays' bytes back, none of which a cache holds.
func (r *raw) reads(arrays []checkpoint.Array) map[string]func() error {
	return map[string]func() error{
		"direct, depth 2": func() error { return r.pieces(arrays, 2, false) },
		"direct, depth 4": func() error { return r.pieces(arrays, 4, false) },
		"direct, depth 8": func() error { return r.pieces(arrays, 8, false) },
		"through the cache": func() error {
			at := int64(0)
			for _, a := range arrays {
				if _, err := r.file.ReadAt(a.Data, at); err != nil {
					return err
				}
				at += a.Len()
			}
			return nil
		},
	}
}

// pieces moves the arrays past the cache, several pieces at a time, between the file and the memory where they are.
func (r *raw) pieces(arrays []checkpoint.Array, depth int, write bool) error {
	type move struct {
		b  []byte
		at int64
	}
	var moves []move
	at := int64(0)
	for _, a := range arrays {
		for b := a.Data; len(b) > 0; b = b[min(piece, len(b)):] {
			moves = append(moves, move{b[:min(piece, len(b))], at})
			at += int64(len(moves[len(moves)-1].b))
		}
	}
	var all sync.WaitGroup
	errs := make([]error, depth)
	for k := range depth {
		all.Go(func() {
			for i := k; i < len(moves) && errs[k] == nil; i += depth {
				if write {
					_, errs[k] = r.direct.WriteAt(moves[i].b, moves[i].at)
				} else {
					_, errs[k] = r.direct.ReadAt(moves[i].b, moves[i].at)
				}
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	if write {
		return unix.Fdatasync(int(r.direct.Fd()))
	}
	return nil
}

// parallel writes through the cache, several arrays at a time, a piece after the other with write-back begun.
func (r *raw) parallel(arrays []checkpoint.Array) error {
	const side, small = 4, 1 << 20
	at := make([]int64, len(arrays)+1)
	for i, a := range arrays {
		at[i+1] = at[i] + a.Len()
	}
	var all sync.WaitGroup
	errs := make([]error, side)
	for k := range side {
		all.Go(func() {
			for i := k; i < len(arrays) && errs[k] == nil; i += side {
				for from := int64(0); from < arrays[i].Len() && errs[k] == nil; from += small {
					b := arrays[i].Data[from:min(from+small, arrays[i].Len())]
					if _, errs[k] = r.file.WriteAt(b, at[i]+from); errs[k] == nil {
						errs[k] = unix.SyncFileRange(int(r.file.Fd()), at[i]+from, int64(len(b)), unix.SYNC_FILE_RANGE_WRITE)
					}
				}
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return unix.Fdatasync(int(r.file.Fd()))
}

// DropCache has the kernel forget a file's pages.
func DropCache(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return err
	}
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}

func removeAll(path string) {
	left, _ := filepath.Glob(path + ".*") // no pattern but ours
	for _, p := range left {
		_ = os.Remove(p) // nothing to be done about it
	}
}
