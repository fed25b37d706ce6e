// The latest exported spans of this process, for `skeinctl trace`, which needs no collector. They
// are kept in the order of their ends; the oldest go first.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "services/tracing/span.h"

namespace skein::services {

using SpanPtr = std::shared_ptr<const Span>;

// Any thread. Add copies the span and takes a mutex for a moment.
class RecentSpans {
 public:
  RecentSpans(size_t spans_max, size_t bytes_max) : spans_max_(spans_max), bytes_max_(bytes_max) {}

  // `bytes`: BytesOf(span).
  void Add(const Span& span, size_t bytes);
  // All spans of the traces that `id` names: the id of a trace (32 hexadecimal digits), or a text
  // that a span has as an attribute's value, such as a request's id. Costs a look at every span.
  std::vector<SpanPtr> Find(std::string_view id) const;
  size_t size() const;

 private:
  struct Kept {
    SpanPtr span;
    size_t bytes = 0;
  };

  const size_t spans_max_;
  const size_t bytes_max_;
  mutable std::mutex mu_;
  std::deque<Kept> spans_;  // guarded by mu_, as is bytes_
  size_t bytes_ = 0;
};

}  // namespace skein::services
