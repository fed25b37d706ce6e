// The drawing of a trace.
#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "services/skeinctl/cluster/trace_tree.h"

namespace skein::services {
namespace {

using Json = nlohmann::ordered_json;

std::string Milliseconds(int64_t ns) {
  return absl::StrFormat("%.1f ms", static_cast<double>(ns) * 1e-6);
}

std::string Counted(size_t count, const char* one, const char* several) {
  return absl::StrCat(count, " ", count == 1 ? one : several);
}

std::string BytesText(double bytes) {
  static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  size_t unit = 0;
  while (bytes >= 1000 && unit + 1 < std::size(kUnits)) bytes /= 1000, ++unit;
  return unit == 0 ? absl::StrFormat("%.0f B", bytes)
                   : absl::StrFormat("%.1f %s", bytes, kUnits[unit]);
}

// "estimated 1.5 ms" for skein.estimated_us.
std::string ValueText(std::string_view* name, const Json& value) {
  if (value.is_number() && name->ends_with("_us")) {
    name->remove_suffix(3);
    return Milliseconds(value.get<int64_t>() * 1000);
  }
  if (value.is_number() && *name == "bytes") return BytesText(value.get<double>());
  if (value.is_number() && name->ends_with("gb_per_s")) {
    return absl::StrFormat("%.3f", value.get<double>());
  }
  if (value.is_string()) return value.get<std::string>();
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// What the columns show already, or what only programs need.
bool IsHidden(std::string_view name) {
  static const std::set<std::string_view> kHidden = {"skein.request_id", "skein.role",
                                                     "skein.instance",   "skein.alternatives",
                                                     "skein.epoch",      "skein.model"};
  return kHidden.count(name) > 0;
}

// Those of Skein, without their prefix; of others what tells the model and the tokens.
std::string AttributesText(const Json& attributes) {
  static const std::set<std::string_view> kOfOthers = {"gen_ai.usage.input_tokens",
                                                       "gen_ai.usage.output_tokens",
                                                       "http.response.status_code", "error.type"};
  constexpr std::string_view kOwn = "skein.";
  std::vector<std::string> texts;
  for (const auto& [key, value] : attributes.items()) {
    std::string_view name = key;
    if (IsHidden(name) || (name.substr(0, kOwn.size()) != kOwn && kOfOthers.count(name) == 0)) {
      continue;
    }
    name.remove_prefix(name.substr(0, kOwn.size()) == kOwn ? kOwn.size() : name.rfind('.') + 1);
    const std::string text = ValueText(&name, value);
    if (!text.empty()) texts.push_back(absl::StrCat(std::string(name), " ", text));
  }
  return absl::StrJoin(texts, ", ");
}

std::string InstanceText(const KeptSpan& span) {
  const auto role = span.attributes.find("skein.role");
  const auto instance = span.attributes.find("skein.instance");
  std::string text = role != span.attributes.end() && role->is_string()
                         ? role->get<std::string>()
                         : span.process.substr(0, span.process.find(' '));
  if (instance != span.attributes.end()) absl::StrAppend(&text, " ", instance->dump());
  return text;
}

class Drawing {
 public:
  Drawing(const TraceTree& tree, int bar) : tree_(tree), bar_(bar) {
    const KeptSpan& root = tree.spans[0];
    begin_ns_ = root.start_ns;
    length_ns_ = std::max<int64_t>(1, root.end_ns - root.start_ns);
    for (size_t i = 0; i < tree.spans.size(); ++i) {
      names_ = std::max(names_, NameOf(i).size());
      for (const KeptSpan::Event& event : tree.spans[i].events) {
        names_ = std::max(names_, NameOf(i, event).size());
      }
      instances_ = std::max(instances_, InstanceText(tree.spans[i]).size());
    }
  }

  std::string Draw() const {
    std::string text = Head();
    for (size_t i = 0; i < tree_.spans.size(); ++i) {
      absl::StrAppend(&text, Line(i));
      for (const KeptSpan::Event& event : tree_.spans[i].events) {
        absl::StrAppend(&text, EventLine(i, event));
      }
    }
    return text + Foot();
  }

 private:
  std::string NameOf(size_t i) const {
    return std::string(2 * static_cast<size_t>(tree_.depths[i]), ' ') + tree_.spans[i].name;
  }

  std::string NameOf(size_t i, const KeptSpan::Event& event) const {
    return std::string(2 * static_cast<size_t>(tree_.depths[i]) + 2, ' ') + "- " + event.name;
  }

  std::string Head() const {
    const KeptSpan& root = tree_.spans[0];
    std::set<std::string> processes;
    for (const KeptSpan& span : tree_.spans) processes.insert(span.process);
    std::string text = absl::StrCat(
        "trace ", root.trace, ", ",
        absl::FormatTime("%Y-%m-%d %H:%M:%E3S", absl::FromUnixNanos(root.start_ns),
                         absl::UTCTimeZone()),
        " UTC: ", Milliseconds(length_ns_), ", ", Counted(tree_.spans.size(), "span", "spans"),
        " of ", Counted(processes.size(), "process", "processes"), "\n");
    if (tree_.other_traces > 0) {
      absl::StrAppend(&text, "(", tree_.other_traces,
                      " earlier ones have this name, too; give the id of a trace to see them)\n");
    }
    return absl::StrCat(text, Columns("span", "process", "begins", "takes", std::string(bar_, ' ')),
                        "\n");
  }

  std::string Columns(const std::string& name, const std::string& process,
                      const std::string& begins, const std::string& takes,
                      const std::string& bar) const {
    return absl::StrFormat("%-*s  %-*s %12s %12s |%s|", static_cast<int>(names_), name,
                           static_cast<int>(instances_), process, begins, takes, bar);
  }

  // At least one character; what lies outside the request's time is at its edge.
  std::string Bar(int64_t start_ns, int64_t end_ns) const {
    const auto place = [this](int64_t at_ns) {
      const double share = static_cast<double>(at_ns - begin_ns_) / static_cast<double>(length_ns_);
      return std::clamp(static_cast<int>(std::lround(share * bar_)), 0, bar_);
    };
    const int first = std::min(place(start_ns), bar_ - 1);
    const int end = std::max(place(end_ns), first + 1);
    std::string bar(static_cast<size_t>(bar_), ' ');
    std::fill(bar.begin() + first, bar.begin() + end, '=');
    return bar;
  }

  std::string Line(size_t i) const {
    const KeptSpan& span = tree_.spans[i];
    std::string text =
        Columns(NameOf(i), InstanceText(span), Milliseconds(span.start_ns - begin_ns_),
                Milliseconds(span.end_ns - span.start_ns), Bar(span.start_ns, span.end_ns));
    const std::string attributes = AttributesText(span.attributes);
    if (!attributes.empty()) absl::StrAppend(&text, " ", attributes);
    if (span.failed) {
      absl::StrAppend(&text, " FAILED", span.failure.empty() ? "" : ": ", span.failure);
    }
    if (i > 0 && tree_.parents[i] < 0) absl::StrAppend(&text, " (its parent is not known)");
    return text + "\n";
  }

  std::string EventLine(size_t i, const KeptSpan::Event& event) const {
    const std::string attributes = AttributesText(event.attributes);
    return absl::StrCat(Columns(NameOf(i, event), "", Milliseconds(event.at_ns - begin_ns_), "",
                                Point(event.at_ns)),
                        attributes.empty() ? "" : " ", attributes, "\n");
  }

  std::string Point(int64_t at_ns) const {
    std::string bar = Bar(at_ns, at_ns);
    std::replace(bar.begin(), bar.end(), '=', '.');
    return bar;
  }

  std::string Foot() const {
    std::string text = absl::StrFormat(
        "\nSpans without children cover %.1f %% of the request's time.\n", 100 * tree_.Covered());
    constexpr int64_t kWorthTellingNs = 1'000'000;
    if (tree_.OutsideNs() > kWorthTellingNs) {
      absl::StrAppend(&text, "Spans of other processes lie up to ", Milliseconds(tree_.OutsideNs()),
                      " outside those that they belong to: clocks of hosts differ, or messages "
                      "were on their way.\n");
    }
    for (const std::string& silent : tree_.silent) {
      absl::StrAppend(&text, "Not asked, or no answer: ", silent, "\n");
    }
    return text;
  }

  const TraceTree& tree_;
  const int bar_;
  int64_t begin_ns_ = 0;
  int64_t length_ns_ = 1;
  size_t names_ = 4;
  size_t instances_ = 7;
};

}  // namespace

std::string TraceText(const TraceTree& tree, int bar) {
  return tree.spans.empty() ? "" : Drawing(tree, bar).Draw();
}

}  // namespace skein::services
