package main

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// syscalls are what strace is to record: all by which a program may change a folder, or call what it wrote kept, and none besides.
const syscalls = "openat,open,creat,mkdir,mkdirat,rename,renameat,renameat2,unlink,unlinkat,rmdir,link,linkat,symlink,symlinkat,truncate,ftruncate,fallocate,write,pwrite64,writev,pwritev,pwritev2," +
	"sendfile,copy_file_range,splice,fsync,fdatasync,sync,syncfs,sync_file_range,msync,mmap,lseek"

// syscallEvent is a call as a program made it, or a part of one: strace -f -y -xx writes one when it begins, and where another thread was quicker a second time when it ends.
type syscallEvent struct {
	name   string
	args   string // up to its end, or to where the line was cut
	begun  bool
	ended  bool
	failed bool
	number int // of the call
}

var (
	straceLine = regexp.MustCompile(`^(\d+) +(?:<\.\.\. (\w+) resumed>|(\w+)\()(.*)$`)
	straceEnd  = regexp.MustCompile(`\)\s+= (-?\d+|\?)`)
	hexRun     = regexp.MustCompile(`(?:\\x[0-9a-f]{2})+`)
)

func unhex(s string) string {
	return hexRun.ReplaceAllStringFunc(s, func(x string) string {
		b := make([]byte, 0, len(x)/4)
		for i := 0; i < len(x); i += 4 {
			n, _ := strconv.ParseUint(x[i+2:i+4], 16, 8)
			b = append(b, byte(n))
		}
		return string(b)
	})
}

// readTrace reads what strace wrote.
func readTrace(t *testing.T, text string) []syscallEvent {
	t.Helper()
	var all []syscallEvent
	open := map[string]int{} // by thread: index of the call that it is in
	for line := range strings.Lines(text) {
		m := straceLine.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil {
			continue // signals, exits
		}
		e := syscallEvent{name: m[2] + m[3], args: m[4], begun: m[3] != "", number: len(all)}
		if e.begun {
			if strings.HasSuffix(e.args, "<unfinished ...>") {
				open[m[1]] = len(all)
			} else {
				e.ended = true
			}
		} else {
			at, ok := open[m[1]]
			if !ok {
				t.Fatalf("strace: a call ends that did not begin: %.80s", line)
			}
			delete(open, m[1])
			e.ended, e.number = true, at
		}
		if e.ended {
			end := straceEnd.FindAllStringSubmatch(e.args, -1)
			if end == nil {
				t.Fatalf("strace: a call without a result: %.80s", line)
			}
			e.failed = strings.HasPrefix(end[len(end)-1][1], "-") || end[len(end)-1][1] == "?"
		}
		all = append(all, e)
	}
	return all
}

// quoted are the texts of a call's arguments.
func quoted(args string) []string {
	var all []string
	for {
		from := strings.IndexByte(args, '"')
		if from < 0 {
			return all
		}
		to := strings.IndexByte(args[from+1:], '"')
		if to < 0 {
			return all
		}
		all, args = append(all, unhex(args[from+1:from+1+to])), args[from+to+2:]
	}
}

// described is the path of a call's first argument, an open file.
func described(args string) string {
	from, to := strings.IndexByte(args, '<'), strings.IndexByte(args, '>')
	if from < 0 || to < from || from > 12 {
		return ""
	}
	return unhex(args[from+1 : to])
}
