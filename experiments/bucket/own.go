package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/bucket"
)

// ownLongest is what longer functions are cut to.
const ownLongest = 4096

// own are two data sets of Go's standard library, as the installed version has it: the functions by their tokens, and the paragraphs of the comments
// of all declarations by their words; in the order of the files.
func own() (functions, comments bucket.Lengths, err error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, nil, fmt.Errorf("go env GOROOT: %w", err)
	}
	err = filepath.WalkDir(filepath.Join(strings.TrimSpace(string(root)), "src"), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == "vendor"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		f, c, err := lengthsOf(path, text)
		functions, comments = append(functions, f...), append(comments, c...)
		return err
	})
	return functions, comments, err
}

// lengthsOf are those of a file.
func lengthsOf(path string, text []byte) (functions, comments bucket.Lengths, err error) {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, path, text, parser.ParseComments)
	if err != nil {
		return nil, nil, err
	}
	at := func(p token.Pos) int { return files.Position(p).Offset }
	for _, d := range parsed.Decls {
		var doc *ast.CommentGroup
		switch d := d.(type) {
		case *ast.FuncDecl:
			functions = append(functions, uint32(min(tokensOf(text[at(d.Pos()):at(d.End())]), ownLongest)))
			doc = d.Doc
		case *ast.GenDecl:
			doc = d.Doc
		}
		for _, paragraph := range strings.Split(doc.Text(), "\n\n") {
			if n := len(strings.Fields(paragraph)); n > 0 {
				comments = append(comments, uint32(n))
			}
		}
	}
	return functions, comments, nil
}

// tokensOf counts Go's tokens.
func tokensOf(text []byte) (n int) {
	var s scanner.Scanner
	s.Init(token.NewFileSet().AddFile("", -1, len(text)), text, nil, 0)
	for {
		if _, t, _ := s.Scan(); t == token.EOF {
			return max(1, n)
		}
		n++
	}
}

// writeOwn writes both as files of lengths.
func writeOwn(folder string) error {
	functions, comments, err := own()
	if err != nil {
		return err
	}
	for name, l := range map[string]bucket.Lengths{"functions_of_go.txt": functions, "comments_of_go.txt": comments} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(strings.Trim(fmt.Sprintln(strings.ReplaceAll(fmt.Sprint(l), " ", "\n")), "[]\n")+"\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// ownSettings are both with the cost of the real lengths.
func ownSettings(cost formula) ([]setting, error) {
	functions, comments, err := own()
	return []setting{
		{fmt.Sprintf("functions_of_go.txt, %d lengths up to %d", len(functions), slices.Max(functions)), functions, cost},
		{fmt.Sprintf("comments_of_go.txt, %d lengths up to %d", len(comments), slices.Max(comments)), comments, cost},
	}, err
}
