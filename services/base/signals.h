// Waiting for SIGTERM and SIGINT.
#pragma once

#include <csignal>

namespace skein::services {

// Call first in main, before any thread: only the functions below then receive the signals. Ignores
// SIGPIPE.
inline void BlockStopSignals() {
  std::signal(SIGPIPE, SIG_IGN);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

// The same for SIGHUP, in processes that reload something on it.
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
