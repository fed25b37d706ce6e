#include "services/openai/api_markdown.h"

#include <cmath>
#include <functional>
#include <set>
#include <vector>

#include "services/openai/api_description.h"

namespace skein::services::openai {
namespace {

std::string Text(double value) {
  if (std::trunc(value) == value) return std::to_string(static_cast<int64_t>(value));
  std::string text = std::to_string(value);
  text.erase(text.find_last_not_of('0') + 1);
  return text;
}

std::string Code(std::string_view text) { return "`" + std::string(text) + "`"; }
std::string OrDash(std::string_view text) { return text.empty() ? "-" : std::string(text); }

std::string_view TypeName(Type type) {
  switch (type) {
    case Type::kBool:
      return "boolean";
    case Type::kInt:
    case Type::kInt64:
      return "integer";
    case Type::kNumber:
      return "number";
    case Type::kString:
      return "string";
    case Type::kStrings:
      return "string or strings";
    case Type::kTokenIds:
      return "token ids";
    case Type::kObject:
      return "object";
    case Type::kArray:
      return "array";
    case Type::kAny:
      break;
  }
  return "see right";
}

std::string SkeinColumn(const Parameter& row) {
  std::string text(TypeName(row.type));
  if (row.low != row.high) text += ", " + Text(row.low) + " to " + Text(row.high);
  if (row.support == Support::kIgnored) text += "; no effect";
  if (row.support == Support::kRefused) {
    text = row.neutral.empty()
               ? "refused"
               : "refused, but for " + Code(row.neutral.substr(1, row.neutral.size() - 2));
    if (!row.unless.empty()) text += " or with " + Code(row.unless);
  }
  return row.required ? text + "; required" : text;
}

std::string Row(const std::vector<std::string>& cells) {
  std::string line = "|";
  for (const std::string& cell : cells) line += " " + cell + " |";
  return line + "\n";
}

std::string Header(const std::vector<std::string>& cells) {
  return "\n" + Row(cells) + Row(std::vector<std::string>(cells.size(), "---"));
}

std::string ParameterTable(const std::vector<Parameter>& rows) {
  std::string out = Header({"parameter", "OpenAI", "vLLM", "Skein", "default", "meaning"});
  for (const Parameter& row : rows) {
    out += Row({Code(row.name), OrDash(row.openai), OrDash(row.vllm), SkeinColumn(row),
                OrDash(row.fallback), std::string(row.meaning)});
  }
  return out;
}

std::vector<Parameter> Without(const std::vector<Parameter>& rows,
                               const std::vector<Parameter>& others) {
  std::vector<Parameter> out;
  for (const Parameter& row : rows) {
    const Parameter* other = FindParameter(others, row.name);
    if (other == nullptr || other->meaning != row.meaning) out.push_back(row);
  }
  return out;
}

std::string Paths() {
  std::string out = "## Paths\n" + Header({"method", "path", "what"});
  for (const Endpoint& e : Endpoints()) {
    out += Row({std::string(e.method), Code(e.path), std::string(e.summary)});
  }
  return out;
}

std::string Errors() {
  std::string out = "## Errors\n" + Header({"status", "code", "meaning"});
  for (const ErrorCase& e : ErrorCases()) {
    out += Row({std::to_string(e.status), Code(e.code), std::string(e.meaning)});
  }
  return out;
}

std::string HeaderTable() {
  std::string out = "## Headers\n" + Header({"header", "of the", "meaning"});
  for (const HeaderField& h : HeaderFields()) {
    out += Row({Code(h.name), h.of_request ? "request" : "answer", std::string(h.meaning)});
  }
  return out;
}

}  // namespace

std::string ApiTables() {
  std::vector<Parameter> shared = SamplingParameters();
  for (auto& rows : {IgnoredParameters(), RefusedParameters()}) {
    shared.insert(shared.end(), rows.begin(), rows.end());
  }
  std::string out = Paths();
  for (const Endpoint& endpoint : Endpoints()) {
    const std::string path(endpoint.path);
    if (!endpoint.form.empty())
      out += "\n## Form of " + path + "\n" + ParameterTable(endpoint.form);
    if (!endpoint.query.empty()) {
      out += "\n## Query of " + path + "\n" + ParameterTable(endpoint.query);
    }
    if (endpoint.parameters.empty()) continue;
    out +=
        "\n## Parameters of " + path + "\n" + ParameterTable(Without(endpoint.parameters, shared));
  }
  out += "\n## Parameters of all that generate\n" + ParameterTable(SamplingParameters());
  out += "\n## Accepted without effect\n" + ParameterTable(IgnoredParameters());
  out += "\n## Refused by name\n" + ParameterTable(RefusedParameters());
  return out + "\n" + Errors() + "\n" + HeaderTable();
}

std::string WithTables(std::string_view page) {
  const size_t begin = page.find(kTablesBegin), end = page.find(kTablesEnd);
  if (begin == std::string_view::npos || end == std::string_view::npos || end < begin) return {};
  return std::string(page.substr(0, begin + kTablesBegin.size())) + "\n\n" + ApiTables() + "\n" +
         std::string(page.substr(end));
}

}  // namespace skein::services::openai
