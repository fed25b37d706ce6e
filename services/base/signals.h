// SIGTERM and SIGINT as something to wait for.
#pragma once

#include <csignal>

namespace skein::services {

// First thing in main, before any thread: the signals are delivered to nobody but those that wait
// for them.
// SIGPIPE is ignored.
inline void BlockStopSignals() {
  std::signal(SIGPIPE, SIG_IGN);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

// The same for SIGHUP, in processes that read something anew with it.
inline void BlockReloadSignal() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

// Blocks until SIGTERM, SIGINT or SIGHUP; returns which.
inline int AwaitStopOrReloadSignal() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGHUP);
  int signal = 0;
  sigwait(&set, &signal);
  return signal;
}

}  // namespace skein::services
