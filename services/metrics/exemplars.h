// Exemplars: for each bucket of a histogram the latest observation whose trace is exported.
// prometheus-cpp does not have them, so they are kept beside its histograms and joined when a page
// is rendered (open_metrics.h).
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace skein::services {

struct Exemplar {
  std::string trace_id;  // 32 hexadecimal digits; empty: there is none
  double value = 0;
  double unix_s = 0;  // when it was observed
};

// Of one series. Thread-safe.
class SeriesExemplars {
 public:
  // `bounds`: the upper bounds of the buckets, ascending, without +Inf.
  explicit SeriesExemplars(std::vector<double> bounds)
      : bounds_(std::move(bounds)), latest_(bounds_.size() + 1) {}

  void Note(double value, std::string_view trace_id);
  // By bucket, that of +Inf last.
  std::vector<Exemplar> Latest() const;

 private:
  const std::vector<double> bounds_;
  mutable std::mutex mu_;
  std::vector<Exemplar> latest_;  // guarded by mu_
};

// Of all series of a process. Thread-safe.
class Exemplars {
 public:
  using Labels = std::map<std::string, std::string>;

  // Made on first use; it lives as long as this object.
  SeriesExemplars& Of(const std::string& name, const Labels& labels,
                      const std::vector<double>& bounds);
  // Empty: the series has none.
  std::vector<Exemplar> Latest(const std::string& name, const Labels& labels) const;

 private:
  mutable std::mutex mu_;
  std::map<std::pair<std::string, Labels>, SeriesExemplars> series_;  // guarded by mu_
};

}  // namespace skein::services
