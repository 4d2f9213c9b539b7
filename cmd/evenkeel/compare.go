package main

type compareCmd struct{}

func (*compareCmd) Run(*app) error { return nil }
