#include "scheduler/jobs/line_order.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>

namespace skein::scheduler::jobs {

void OrderLines(std::vector<LineInfo>* lines) {
  std::map<uint64_t, int64_t> longest;  // by prefix
  for (const LineInfo& line : *lines) {
    int64_t& of_prefix = longest[line.prefix];
    of_prefix = std::max(of_prefix, line.tokens);
  }
  const auto place = [&longest](const LineInfo& line) {
    return std::tuple(-longest.at(line.prefix), line.prefix, -line.tokens, line.line);
  };
  std::sort(lines->begin(), lines->end(),
            [&place](const LineInfo& a, const LineInfo& b) { return place(a) < place(b); });
}

}  // namespace skein::scheduler::jobs
