package main

type runCmd struct{}

func (*runCmd) Run(*app) error { return nil }
