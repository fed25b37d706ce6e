#include "services/skeinctl/cluster/trace_tree.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "absl/strings/str_cat.h"

namespace skein::services {
namespace {

using Json = nlohmann::ordered_json;

std::string TextIn(const Json& json, const char* name) {
  const auto it = json.find(name);
  return it != json.end() && it->is_string() ? it->get<std::string>() : "";
}

int64_t NumberIn(const Json& json, const char* name) {
  const auto it = json.find(name);
  return it != json.end() && it->is_number_integer() ? it->get<int64_t>() : 0;
}

Json ObjectIn(const Json& json, const char* name) {
  const auto it = json.find(name);
  return it != json.end() && it->is_object() ? *it : Json::object();
}

bool IsTrue(const Json& json, const char* name) {
  const auto it = json.find(name);
  return it != json.end() && it->is_boolean() && it->get<bool>();
}

KeptSpan SpanFrom(const Json& json, const std::string& process) {
  KeptSpan span;
  span.trace = TextIn(json, "trace");
  span.span = TextIn(json, "span");
  span.parent = TextIn(json, "parent");
  span.name = TextIn(json, "name");
  span.start_ns = NumberIn(json, "start_unix_ns");
  span.end_ns = NumberIn(json, "end_unix_ns");
  span.attributes = ObjectIn(json, "attributes");
  span.failed = IsTrue(json, "failed");
  span.failure = TextIn(json, "failure");
  span.process = process;
  const auto events = json.find("events");
  if (events == json.end() || !events->is_array()) return span;
  for (const Json& one : *events) {
    if (!one.is_object()) continue;
    span.events.push_back(
        {NumberIn(one, "unix_ns"), TextIn(one, "name"), ObjectIn(one, "attributes")});
  }
  return span;
}

// The trace that began last, of all in `spans`; how many others there are.
std::string LatestTrace(const std::vector<KeptSpan>& spans, size_t* others) {
  std::map<std::string, int64_t> begins;
  for (const KeptSpan& span : spans) {
    const auto [it, added] = begins.emplace(span.trace, span.start_ns);
    if (!added) it->second = std::min(it->second, span.start_ns);
  }
  *others = begins.empty() ? 0 : begins.size() - 1;
  const auto latest =
      std::max_element(begins.begin(), begins.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return latest == begins.end() ? "" : latest->first;
}

// Orders spans as TraceTree has them.
class Builder {
 public:
  explicit Builder(std::vector<KeptSpan> spans) : spans_(std::move(spans)) {
    std::stable_sort(spans_.begin(), spans_.end(), [](const KeptSpan& a, const KeptSpan& b) {
      return std::pair(a.start_ns, -a.end_ns) < std::pair(b.start_ns, -b.end_ns);
    });
    std::set<std::string> known;
    for (const KeptSpan& span : spans_) known.insert(span.span);
    for (size_t i = 0; i < spans_.size(); ++i) {
      const bool root = known.count(spans_[i].parent) == 0 || spans_[i].parent == spans_[i].span;
      root ? roots_.push_back(i) : children_[spans_[i].parent].push_back(i);
    }
    // Of children that began together the one that ended first comes first: the next ones follow
    // it.
    for (auto& [parent, children] : children_) {
      std::stable_sort(children.begin(), children.end(), [this](size_t a, size_t b) {
        return std::pair(spans_[a].start_ns, spans_[a].end_ns) <
               std::pair(spans_[b].start_ns, spans_[b].end_ns);
      });
    }
  }

  void Build(TraceTree* tree) {
    for (const size_t root : roots_) Add(root, -1, 0, tree);
  }

 private:
  void Add(size_t i, int parent, int depth, TraceTree* tree) {
    const auto place = static_cast<int>(tree->spans.size());
    const std::string id = spans_[i].span;
    tree->spans.push_back(std::move(spans_[i]));
    tree->parents.push_back(parent);
    tree->depths.push_back(depth);
    for (const size_t child : children_[id]) Add(child, place, depth + 1, tree);
  }

  std::vector<KeptSpan> spans_;
  std::vector<size_t> roots_;
  std::map<std::string, std::vector<size_t>> children_;
};

}  // namespace

ProcessSpans ParseSpans(const std::string& process, const std::string& json) {
  ProcessSpans out{.process = process};
  const Json parsed = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  const auto spans = parsed.is_object() ? parsed.find("spans") : parsed.end();
  if (!parsed.is_object() || spans == parsed.end() || !spans->is_array()) {
    out.error = "its answer is no list of spans: it may be of an older version";
    return out;
  }
  out.tracing = IsTrue(parsed, "tracing");
  for (const Json& one : *spans) {
    if (one.is_object()) out.spans.push_back(SpanFrom(one, process));
  }
  return out;
}

TraceTree TreeOf(std::vector<ProcessSpans> processes) {
  TraceTree tree;
  std::vector<KeptSpan> all;
  std::set<std::pair<std::string, std::string>> seen;  // a process may have been asked twice
  for (ProcessSpans& process : processes) {
    if (!process.error.empty()) {
      tree.silent.push_back(absl::StrCat(process.process, ": ", process.error));
    }
    for (KeptSpan& span : process.spans) {
      if (seen.emplace(span.trace, span.span).second) all.push_back(std::move(span));
    }
  }
  const std::string latest = LatestTrace(all, &tree.other_traces);
  std::erase_if(all, [&](const KeptSpan& span) { return span.trace != latest; });
  Builder(std::move(all)).Build(&tree);
  return tree;
}

double TraceTree::Covered() const {
  if (spans.empty() || spans[0].end_ns <= spans[0].start_ns) return 0;
  const std::set<int> inner(parents.begin(), parents.end());
  std::vector<std::pair<int64_t, int64_t>> leaves;
  for (size_t i = 0; i < spans.size(); ++i) {
    if (inner.count(static_cast<int>(i)) > 0) continue;
    leaves.emplace_back(std::max(spans[i].start_ns, spans[0].start_ns),
                        std::min(spans[i].end_ns, spans[0].end_ns));
  }
  std::sort(leaves.begin(), leaves.end());
  int64_t covered_ns = 0;
  int64_t until_ns = spans[0].start_ns;
  for (const auto& [start_ns, end_ns] : leaves) {
    covered_ns += std::max<int64_t>(0, end_ns - std::max(start_ns, until_ns));
    until_ns = std::max(until_ns, end_ns);
  }
  return static_cast<double>(covered_ns) / static_cast<double>(spans[0].end_ns - spans[0].start_ns);
}

int64_t TraceTree::OutsideNs() const {
  int64_t most_ns = 0;
  for (size_t i = 0; i < spans.size(); ++i) {
    if (parents[i] < 0) continue;
    const KeptSpan& parent = spans[static_cast<size_t>(parents[i])];
    if (parent.process == spans[i].process) continue;
    most_ns =
        std::max({most_ns, parent.start_ns - spans[i].start_ns, spans[i].end_ns - parent.end_ns});
  }
  return most_ns;
}

std::string TraceJson(const TraceTree& tree) {
  Json spans = Json::array();
  for (size_t i = 0; i < tree.spans.size(); ++i) {
    const KeptSpan& span = tree.spans[i];
    Json events = Json::array();
    for (const KeptSpan::Event& event : span.events) {
      events.push_back(
          {{"unix_ns", event.at_ns}, {"name", event.name}, {"attributes", event.attributes}});
    }
    spans.push_back({{"trace", span.trace},
                     {"span", span.span},
                     {"parent", span.parent},
                     {"name", span.name},
                     {"process", span.process},
                     {"depth", tree.depths[i]},
                     {"start_unix_ns", span.start_ns},
                     {"end_unix_ns", span.end_ns},
                     {"attributes", span.attributes},
                     {"events", std::move(events)},
                     {"failed", span.failed},
                     {"failure", span.failure}});
  }
  const Json json = {{"spans", std::move(spans)},
                     {"covered", tree.Covered()},
                     {"outside_ns", tree.OutsideNs()},
                     {"silent", tree.silent},
                     {"other_traces", tree.other_traces}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace skein::services
