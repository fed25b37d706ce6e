// What a permit costs: at the orchestrator, which signs one for each writer of a placed request,
// and at the decode-worker, which verifies it when the transfer opens and compares it in later
// calls.
//   bazel run --config=opt //bench/permits:permit_cost
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "scheduler/vocabulary/check.h"
#include "services/permits/permit.h"
#include "services/permits/permit_gate.h"

namespace skein::services {
namespace {

constexpr int kRounds = 21;
constexpr int kCalls = 2000;

double CpuUs() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

// The median of kRounds means, in microseconds of CPU time a call.
void Report(const char* what, const std::function<void(int)>& call) {
  std::vector<double> us;
  for (int round = 0; round < kRounds; ++round) {
    const double begin = CpuUs();
    for (int i = 0; i < kCalls; ++i) call(round * kCalls + i);
    us.push_back((CpuUs() - begin) / kCalls);
  }
  std::sort(us.begin(), us.end());
  std::printf("%-42s %7.2f us (min %.2f, max %.2f)\n", what, us[us.size() / 2], us.front(),
              us.back());
}

int Run() {
  const PermitSigner signer = *PermitSigner::Make();
  const auto permit_of = [](int serial) {
    return Permit{.id = {7, static_cast<uint64_t>(serial)},
                  .epoch = {1},
                  .writer = {104},
                  .decode = {201},
                  .generation = 1,
                  .issued_s = 1,
                  .expires_s = 900};
  };
  PermitGate gate([] { return int64_t{1}; });
  gate.SetProcess({201});
  SKEIN_CHECK(gate.TakeKey(1, signer.public_key()).ok());
  std::vector<std::string> permits(static_cast<size_t>(kRounds) * kCalls);
  Report("orchestrator: sign, per writer",
         [&](int i) { permits[static_cast<size_t>(i)] = *signer.Sign(permit_of(i)); });
  Report("decode-worker: verify, at OpenTransfer", [&](int i) {
    scheduler::OpenTransferRequest request;
    request.id = {7, static_cast<uint64_t>(i)};
    request.epoch = {1};
    request.prefill = {3};
    request.incarnation = {104};
    SKEIN_CHECK(gate.Open(&request, {permits[static_cast<size_t>(i)], "10.0.0.4"}).ok());
  });
  Report("decode-worker: compare, at each later call", [&](int i) {
    const scheduler::RenewRequest request{{7, static_cast<uint64_t>(i)}, {1}, {3}};
    SKEIN_CHECK(gate.GoOn(request, {permits[static_cast<size_t>(i)], "10.0.0.4"}).ok());
  });
  return 0;
}

}  // namespace
}  // namespace skein::services

int main() { return skein::services::Run(); }
