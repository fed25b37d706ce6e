#include "services/metrics/exemplars.h"

#include <algorithm>
#include <chrono>
#include <tuple>

namespace skein::services {

void SeriesExemplars::Note(double value, std::string_view trace_id) {
  const auto bucket = static_cast<size_t>(std::lower_bound(bounds_.begin(), bounds_.end(), value) -
                                          bounds_.begin());
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  std::lock_guard lock(mu_);
  latest_[bucket] = {std::string(trace_id), value, now};
}

std::vector<Exemplar> SeriesExemplars::Latest() const {
  std::lock_guard lock(mu_);
  return latest_;
}

SeriesExemplars& Exemplars::Of(const std::string& name, const Labels& labels,
                               const std::vector<double>& bounds) {
  std::lock_guard lock(mu_);
  return series_
      .emplace(std::piecewise_construct, std::forward_as_tuple(name, labels),
               std::forward_as_tuple(bounds))
      .first->second;
}

std::vector<Exemplar> Exemplars::Latest(const std::string& name, const Labels& labels) const {
  std::lock_guard lock(mu_);
  const auto it = series_.find({name, labels});
  return it == series_.end() ? std::vector<Exemplar>() : it->second.Latest();
}

}  // namespace skein::services
