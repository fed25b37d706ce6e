#include "services/admin/start_signals.h"

#include <csignal>
#include <cstdlib>
#include <ctime>

#include "services/log/log.h"

namespace skein::services {
namespace {

constexpr timespec kLook = {.tv_sec = 0, .tv_nsec = 20'000'000};

}  // namespace

EndOnStopSignal::EndOnStopSignal()
    : thread_([this] {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGTERM);
        sigaddset(&set, SIGINT);
        while (!over_.load()) {
          if (sigtimedwait(&set, nullptr, &kLook) < 0) continue;
          LogInfo("stopped before serving");
          FlushLog();
          std::_Exit(0);  // destructors would wait for the model to load
        }
      }) {}

EndOnStopSignal::~EndOnStopSignal() {
  over_.store(true);
  thread_.join();
}

}  // namespace skein::services
