#include "services/tracing/recent_spans.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <variant>

namespace skein::services {
namespace {

bool Has(const AttributeValue& value, std::string_view text) {
  if (const auto* one = std::get_if<std::string>(&value)) return *one == text;
  const auto* several = std::get_if<std::vector<std::string>>(&value);
  return several != nullptr && std::find(several->begin(), several->end(), text) != several->end();
}

bool Has(const Span& span, std::string_view text) {
  return std::any_of(span.attributes.begin(), span.attributes.end(),
                     [&](const SpanAttribute& attribute) { return Has(attribute.value, text); });
}

}  // namespace

void RecentSpans::Add(const Span& span, size_t bytes) {
  if (spans_max_ == 0 || bytes > bytes_max_) return;
  auto copy = std::make_shared<const Span>(span);
  std::deque<Kept> gone;  // freed behind the lock
  std::lock_guard lock(mu_);
  spans_.push_back({std::move(copy), bytes});
  bytes_ += bytes;
  while (spans_.size() > spans_max_ || bytes_ > bytes_max_) {
    bytes_ -= spans_.front().bytes;
    gone.push_back(std::move(spans_.front()));
    spans_.pop_front();
  }
}

std::vector<SpanPtr> RecentSpans::Find(std::string_view id) const {
  std::vector<SpanPtr> all;
  {
    std::lock_guard lock(mu_);
    all.reserve(spans_.size());
    for (const Kept& kept : spans_) all.push_back(kept.span);
  }
  std::set<TraceId> traces;
  if (id.empty()) return {};
  for (const SpanPtr& span : all) {
    if (Hex(span->context.trace) == id || Has(*span, id)) traces.insert(span->context.trace);
  }
  std::vector<SpanPtr> found;
  std::copy_if(all.begin(), all.end(), std::back_inserter(found),
               [&](const SpanPtr& span) { return traces.count(span->context.trace) > 0; });
  return found;
}

size_t RecentSpans::size() const {
  std::lock_guard lock(mu_);
  return spans_.size();
}

}  // namespace skein::services
