// Executes templates with Go's own text/template: one JSON object per line in, one per line out.
//
// In: {"template": text, "values": {...}}; integers stay integers. Out: {"output": text} or {"error": text}, where
// "stage" is "parse" or "execute". Options and functions are those that chat templates are executed with.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/template"
)

type request struct {
	Template string         `json:"template"`
	Values   map[string]any `json:"values"`
}

func plain(value any) any {
	switch v := value.(type) {
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return int(i)
		}
		f, _ := v.Float64()
		return f
	case map[string]any:
		for key := range v {
			v[key] = plain(v[key])
		}
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	}
	return value
}

type limited struct {
	buffer bytes.Buffer
}

func (l *limited) Write(data []byte) (int, error) {
	if l.buffer.Len()+len(data) > 1<<20 {
		return 0, fmt.Errorf("too much output")
	}
	return l.buffer.Write(data)
}

func answer(line []byte) (result map[string]string) {
	defer func() {
		if problem := recover(); problem != nil {
			result = map[string]string{"error": fmt.Sprint(problem), "stage": "execute"}
		}
	}()
	var asked request
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.UseNumber()
	if err := decoder.Decode(&asked); err != nil {
		return map[string]string{"error": err.Error(), "stage": "request"}
	}
	functions := template.FuncMap{
		"json": func(value any) string {
			data, _ := json.Marshal(value)
			return string(data)
		},
	}
	parsed, err := template.New("").Option("missingkey=zero").Funcs(functions).Parse(asked.Template)
	if err != nil {
		return map[string]string{"error": err.Error(), "stage": "parse"}
	}
	var output limited
	if err := parsed.Execute(&output, plain(asked.Values)); err != nil {
		return map[string]string{"error": err.Error(), "stage": "execute"}
	}
	return map[string]string{"output": strings.ToValidUTF8(output.buffer.String(), "\uFFFD")}
}

func main() {
	input := bufio.NewReaderSize(os.Stdin, 1<<20)
	output := json.NewEncoder(os.Stdout)
	for {
		line, err := input.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			_ = output.Encode(answer(line))
		}
		if err != nil {
			return
		}
	}
}
