// Renders the templates of a Helm chart with Go's text/template, as `helm template` does, for machines without Helm.
//
//	helm_render CHART < INPUT      INPUT: JSON, {"Values": ..., "Release": {"Name": ..., "Namespace": ...}}
//
// Of Helm's functions it has those that our templates use; toYaml writes JSON, which is YAML. Another function is an error.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

type files struct{ chart string }

// Get returns the text of a file of the chart; Helm returns "" for one that is not there, and so does this.
func (f files) Get(name string) string {
	text, err := os.ReadFile(filepath.Join(f.chart, name))
	if err != nil {
		return ""
	}
	return string(text)
}

func toYaml(value interface{}) (string, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(value)
	return strings.TrimSuffix(out.String(), "\n"), err
}

// blockYaml is toYaml of a map or list in block style on its first level, so that it can stand beside other keys or items.
func blockYaml(value interface{}) (string, error) {
	if items, is_list := value.([]interface{}); is_list && len(items) > 0 {
		var lines []string
		for _, item := range items {
			text, err := toYaml(item)
			if err != nil {
				return "", err
			}
			lines = append(lines, "- "+strings.ReplaceAll(text, "\n", "\n  "))
		}
		return strings.Join(lines, "\n"), nil
	}
	fields, is_map := value.(map[string]interface{})
	if !is_map || len(fields) == 0 {
		return toYaml(value)
	}
	var lines []string
	for key, field := range fields {
		text, err := toYaml(field)
		if err != nil {
			return "", err
		}
		lines = append(lines, fmt.Sprintf("%s: %s", key, strings.ReplaceAll(text, "\n", "\n  ")))
	}
	return strings.Join(lines, "\n"), nil
}

func nindent(spaces int, text string) string {
	pad := strings.Repeat(" ", spaces)
	return "\n" + pad + strings.ReplaceAll(text, "\n", "\n"+pad)
}

func quote(value interface{}) string { return fmt.Sprintf("%q", fmt.Sprint(value)) }

func render(chart string, input map[string]interface{}) error {
	functions := template.FuncMap{"toYaml": blockYaml, "nindent": nindent, "quote": quote}
	input["Files"] = files{chart}
	paths, err := filepath.Glob(filepath.Join(chart, "templates", "*"))
	if err != nil || len(paths) == 0 {
		return fmt.Errorf("%s: no templates", chart)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		parsed, err := template.New(path).Funcs(functions).Parse(string(text))
		if err != nil {
			return err
		}
		var out bytes.Buffer
		if err := parsed.Execute(&out, input); err != nil {
			return err
		}
		if strings.HasSuffix(path, ".yaml") && strings.TrimSpace(out.String()) != "" {
			fmt.Printf("---\n# %s\n%s\n", filepath.Base(path), out.String())
		}
	}
	return nil
}

func main() {
	var input map[string]interface{}
	err := json.NewDecoder(os.Stdin).Decode(&input)
	if err == nil && len(os.Args) == 2 {
		err = render(os.Args[1], input)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "helm_render:", err)
		os.Exit(1)
	}
}
