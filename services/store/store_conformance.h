// What every ClusterStore has to pass: the contract of cluster_store.h as tests. A test program
// instantiates the suite with a way to open its store:
//
//   INSTANTIATE_TEST_SUITE_P(Embedded, StoreConformance, ::testing::Values(StoreUnderTest{...}));
//
// Stores that keep what earlier tests have written are fine: each test has a prefix of its own.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/store/cluster_store.h"

namespace skein::services {

struct StoreUnderTest {
  std::string name;
  // A further handle of the one store that all tests of the program use. Null: skip, for `why`.
  std::function<std::unique_ptr<ClusterStore>()> open;
  std::string why;
  // Lets time pass for leases. Null: the store's time is real, and passes by itself.
  std::function<void(int64_t time_us)> pass;

  friend std::ostream& operator<<(std::ostream& out, const StoreUnderTest& store) {
    return out << store.name;
  }
};

// The latest that a watch told, to be waited for.
class WatchedPrefix {
 public:
  WatchedPrefix(ClusterStore* store, const std::string& prefix);

  // Waits until a snapshot with these keys was told; false: not within a minute.
  bool Await(const std::vector<std::string>& keys);
  // The same for an error.
  bool AwaitError();
  bool RevisionsGrow();
  StoreSnapshot latest();

 private:
  bool AwaitThat(const std::function<bool()>& holds);

  std::mutex mu_;
  std::condition_variable changed_;
  std::optional<absl::StatusOr<StoreSnapshot>> latest_;
  int64_t revision_ = 0;
  bool revisions_grow_ = true;
  std::unique_ptr<StoreWatch> watch_;  // last: it uses the others
};

class StoreConformance : public ::testing::TestWithParam<StoreUnderTest> {
 protected:
  static constexpr int64_t kTimeoutUs = 20'000'000;

  void SetUp() override;
  std::string Key(const std::string& name) const { return prefix_ + name; }
  void Pass(int64_t time_us) {
    if (GetParam().pass) GetParam().pass(time_us);
  }

  std::unique_ptr<ClusterStore> store_;
  std::string prefix_;  // of this test
};

}  // namespace skein::services
