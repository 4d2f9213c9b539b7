package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// sector is what a disk writes as a whole.
const sector = 512

// change is what was done to a file or a folder and not flushed yet.
type change struct {
	call  int
	done  bool
	at    int64  // of a file: data goes there
	data  []byte // nil: it is cut off at that length
	name  string // of a folder: what the name stands for from now on
	entry *inode // nil: nothing
	from  string // a name that stands for nothing from now on
}

// inode is a file or a folder: as it is on the disk, and what is not there yet.
type inode struct {
	folder  bool
	names   map[string]*inode // of a folder, on the disk
	data    []byte            // of a file, on the disk
	pending []change
	at      int64 // of a file: where the next write goes
	sync    bool  // each write is flushed
}

// powerDisk is a file system under a path, that keeps what was flushed and may lose any of the rest when its power fails. A flush of a file keeps its bytes, one of a
// folder its names: all that POSIX promises. orderly: a flush keeps all names that were made, removed or changed before it, as the journals of ext4, XFS and btrfs do.
type powerDisk struct {
	t       *testing.T
	path    string
	orderly bool
	root    *inode
	covers  map[int][]int // by the call of a flush: changes that were done when it began
	touched map[int]*inode
}

func newPowerDisk(t *testing.T, path string, orderly bool) *powerDisk {
	return &powerDisk{t: t, path: path, orderly: orderly, root: &inode{folder: true, names: map[string]*inode{}}, covers: map[int][]int{}, touched: map[int]*inode{}}
}

// now is what a name stands for, as programs see it.
func (n *inode) now(name string) *inode {
	found := n.names[name]
	for _, c := range n.pending {
		switch name {
		case c.name:
			found = c.entry
		case c.from:
			found = nil
		}
	}
	return found
}

// find is what a path stands for, as programs see it, and the folder that it is in; nil if it is none of this disk.
func (d *powerDisk) find(path string) (folder, at *inode, name string) {
	rest, ok := strings.CutPrefix(path, d.path+"/")
	if !ok {
		return nil, nil, ""
	}
	at = d.root
	for part := range strings.SplitSeq(rest, "/") {
		if folder, name = at, part; folder == nil {
			return nil, nil, "" // a call that will fail
		}
		at = folder.now(part)
	}
	return folder, at, name
}

// event carries out what a program did, or how far it is with that.
func (d *powerDisk) event(e *syscallEvent) {
	if e.begun && !(e.ended && e.failed) {
		d.begin(e)
	}
	if !e.ended {
		return
	}
	n := d.touched[e.number]
	delete(d.touched, e.number)
	covered := d.covers[e.number]
	delete(d.covers, e.number)
	if n == nil {
		return
	}
	for i := range n.pending {
		if n.pending[i].call == e.number {
			n.pending[i].done = true
		}
	}
	switch {
	case e.failed:
		n.pending = slices.DeleteFunc(n.pending, func(c change) bool { return c.call == e.number })
	case covered != nil:
		d.flush(n, covered)
	case n.sync && !n.folder:
		n.keep(func(c *change) bool { return c.call == e.number })
	}
}

// keep puts changes on the disk.
func (n *inode) keep(which func(*change) bool) {
	var rest []change
	for i := range n.pending {
		if c := &n.pending[i]; which(c) {
			n.apply(c)
		} else {
			rest = append(rest, *c)
		}
	}
	n.pending = rest
}

func (n *inode) apply(c *change) {
	switch {
	case n.folder:
		delete(n.names, c.from)
		if delete(n.names, c.name); c.entry != nil {
			n.names[c.name] = c.entry
		}
	case c.data == nil:
		n.resize(c.at)
	default:
		n.resize(max(int64(len(n.data)), c.at+int64(len(c.data))))
		copy(n.data[c.at:], c.data)
	}
}

func (n *inode) resize(to int64) {
	if grown := to - int64(len(n.data)); grown > 0 {
		n.data = append(n.data, make([]byte, grown)...)
	}
	n.data = n.data[:to]
}

// flush keeps changes.
func (d *powerDisk) flush(n *inode, covered []int) {
	n.keep(func(c *change) bool { return slices.Contains(covered, c.call) })
	if d.orderly {
		d.commit(d.root, slices.Max(append(covered, 0)))
	}
}

// commit keeps all names that were changed up to a call.
func (d *powerDisk) commit(n *inode, call int) {
	n.keep(func(c *change) bool { return c.done && c.call <= call })
	for _, below := range n.names {
		if below.folder {
			d.commit(below, call)
		}
	}
}

// begin notes what a call is about to do.
func (d *powerDisk) begin(e *syscallEvent) {
	var paths []string
	switch e.name {
	case "openat", "open", "creat", "mkdirat", "mkdir", "unlink", "unlinkat", "rmdir", "rename", "renameat", "renameat2", "truncate":
		paths = quoted(e.args)
	default:
		paths = []string{described(e.args)}
	}
	if len(paths) == 0 {
		return
	}
	path := strings.TrimSuffix(paths[0], "(deleted)")
	if path != paths[0] {
		return
	}
	if path == d.path && (e.name == "fsync" || e.name == "fdatasync") { // of the folder itself
		d.cover(e, d.root)
		return
	}
	folder, n, name := d.find(path)
	if folder == nil {
		return
	}
	if n == nil && (strings.Contains(e.name, "write") || strings.Contains(e.name, "sync") || strings.Contains(e.name, "truncate")) {
		d.t.Fatalf("%s of %s, which this disk does not have", e.name, path)
	}
	switch e.name {
	case "openat", "open", "creat":
		d.open(e, folder, n, name)
	case "mkdirat", "mkdir":
		if n == nil {
			d.note(e, folder, change{name: name, entry: &inode{folder: true, names: map[string]*inode{}}})
		}
	case "unlink", "unlinkat", "rmdir":
		if n != nil && n.folder == (e.name == "rmdir" || strings.Contains(e.args, "AT_REMOVEDIR")) {
			d.note(e, folder, change{name: name})
		}
	case "rename", "renameat", "renameat2":
		other, _, to := d.find(paths[1])
		if other != folder {
			d.t.Fatalf("a rename between folders: %s", paths)
		}
		d.note(e, folder, change{name: to, entry: n, from: name})
	case "write":
		data := []byte(quoted(e.args)[0])
		d.note(e, n, change{at: n.at, data: data})
		n.at += int64(len(data))
	case "pwrite64":
		text := quoted(e.args)[0]
		d.note(e, n, change{at: d.number(e), data: []byte(text)})
	case "truncate", "ftruncate":
		d.note(e, n, change{at: d.number(e)})
	case "fsync", "fdatasync":
		d.cover(e, n)
	case "lseek", "mmap", "splice": // of what is read
	default:
		d.t.Fatalf("%s of %s is not known to this disk", e.name, path)
	}
}

var numbers = regexp.MustCompile(`, (\d+)(?:\)|$| <unfinished)`)

// number is a call's last argument.
func (d *powerDisk) number(e *syscallEvent) int64 {
	m := numbers.FindAllStringSubmatch(e.args, -1)
	if m == nil {
		d.t.Fatalf("%s without a number: %.200s", e.name, e.args)
	}
	n, err := strconv.ParseInt(m[len(m)-1][1], 10, 64)
	if err != nil {
		d.t.Fatal(err)
	}
	return n
}

func (d *powerDisk) open(e *syscallEvent, folder, n *inode, name string) {
	if n == nil && strings.Contains(e.args, "O_CREAT") {
		n = &inode{}
		d.note(e, folder, change{name: name, entry: n})
	}
	if n == nil || n.folder {
		return
	}
	if strings.Contains(e.args, "O_APPEND") {
		d.t.Fatalf("%s is opened to be appended to", name)
	}
	if strings.Contains(e.args, "O_TRUNC") && len(n.data)+len(n.pending) > 0 {
		n.pending = append(n.pending, change{call: e.number, done: true})
	}
	if writes := strings.Contains(e.args, "O_WRONLY") || strings.Contains(e.args, "O_RDWR"); writes {
		n.at, n.sync = 0, strings.Contains(e.args, "O_SYNC")
	}
}

func (d *powerDisk) note(e *syscallEvent, n *inode, c change) {
	c.call = e.number
	n.pending = append(n.pending, c)
	d.touched[e.number] = n
}

// cover notes what a flush that begins will have kept when it ends.
func (d *powerDisk) cover(e *syscallEvent, n *inode) {
	covered := []int{}
	for _, c := range n.pending {
		if c.done {
			covered = append(covered, c.call)
		}
	}
	if d.orderly {
		covered = append(covered, e.number) // all before it, of names
	}
	d.covers[e.number], d.touched[e.number] = covered, n
}

// write writes what a loss of power leaves: of each file all that was flushed, and any of the rest, whole, torn or not; of each folder the
// names that were flushed and some of the changes after, in their order.
func (d *powerDisk) write(to string, r *rand.Rand) error {
	bias := r.IntN(4) // any, hardly any, nearly all, none
	luck := func() bool {
		return bias == 0 && r.IntN(2) == 0 || bias == 1 && r.IntN(20) == 0 || bias == 2 && r.IntN(20) > 0
	}
	limit := -1
	if d.orderly { // names come in one order
		var calls []int
		d.names(d.root, &calls)
		if slices.Sort(calls); len(calls) > 0 {
			if k := r.IntN(len(calls) + 1); k > 0 {
				limit = calls[k-1]
			}
		}
	}
	return d.left(d.root, to, r, luck, limit)
}

// names are the calls that changed names and are not flushed.
func (d *powerDisk) names(n *inode, calls *[]int) {
	seen := map[*inode]bool{}
	for _, below := range n.names {
		seen[below] = true
	}
	for _, c := range n.pending {
		*calls = append(*calls, c.call)
		if c.entry != nil {
			seen[c.entry] = true
		}
	}
	for below := range seen {
		if below.folder {
			d.names(below, calls)
		}
	}
}

func (d *powerDisk) left(n *inode, to string, r *rand.Rand, luck func() bool, limit int) error {
	if !n.folder {
		return os.WriteFile(to, n.torn(r, luck), 0o600)
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	after := inode{folder: true, names: map[string]*inode{}}
	for name, below := range n.names {
		after.names[name] = below
	}
	for i := range n.pending {
		if d.orderly && n.pending[i].call > limit || !d.orderly && !luck() {
			break
		}
		after.apply(&n.pending[i])
	}
	names := make([]string, 0, len(after.names))
	for name := range after.names {
		names = append(names, name)
	}
	slices.Sort(names) // so that chance is the same each time
	for _, name := range names {
		if err := d.left(after.names[name], filepath.Join(to, name), r, luck, limit); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// torn is what is left of a file.
func (n *inode) torn(r *rand.Rand, luck func() bool) []byte {
	out := inode{data: slices.Clone(n.data)}
	for i := range n.pending {
		c := n.pending[i]
		switch {
		case c.data == nil || luck():
			if c.data != nil || luck() {
				out.apply(&c)
			}
		case luck() && len(c.data) > 0: // some of its sectors
			if r.IntN(2) == 0 { // its length alone came
				out.resize(max(int64(len(out.data)), c.at+int64(len(c.data))))
			}
			for from := 0; from < len(c.data); {
				end := min(len(c.data), from+sector-int((c.at+int64(from))%sector))
				if luck() {
					out.apply(&change{at: c.at + int64(from), data: c.data[from:end]})
				}
				from = end
			}
		}
	}
	return out.data
}
