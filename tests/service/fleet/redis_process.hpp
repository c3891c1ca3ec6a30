#pragma once

// A redis-server, or redis-sentinel, of a test: on a free port of this machine alone, without a file.

#include <arpa/inet.h>
#include <csignal>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../../service/fleet/redis.hpp"
#include "../../io/file_builder.hpp"
#include "../../test.hpp"

namespace tests {

inline std::uint16_t free_port() {
    const int one = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    REQUIRE(::bind(one, reinterpret_cast<sockaddr*>(&at), size) == 0);
    REQUIRE(::getsockname(one, reinterpret_cast<sockaddr*>(&at), &size) == 0);
    ::close(one);
    return ntohs(at.sin_port);
}

/// Waits until it holds, for as long as a loaded machine may need.
template <class F>
bool comes(F holds) {
    for (int i = 0; i < 1'500; ++i) {
        if (holds()) {
            return true;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return false;
}

class redis_process {
  public:
    explicit redis_process(const std::vector<std::string>& options = {})
        : words_{"redis-server",
                 "--port",
                 std::to_string(port),
                 "--bind",
                 "127.0.0.1",
                 "--save",
                 "",
                 "--dir",
                 folder_.path().string(),
                 "--logfile",
                 "log"} {
        words_.insert(words_.end(), options.begin(), options.end());
        start();
    }
    /// A sentinel that knows this master by a name.
    redis_process(const std::string& name, const redis_process& master) {
        std::string text = "port " + std::to_string(port) + "\nbind 127.0.0.1\ndir " +
                           folder_.path().string() + "\nlogfile log\nsentinel monitor " + name +
                           " 127.0.0.1 " + std::to_string(master.port) + " 1\n";
        for (const char* const each : {"down-after-milliseconds", "failover-timeout"}) {
            text += std::string("sentinel ") + each + " " + name + " 1000\n";
        }
        folder_.put("sentinel.conf", text);
        words_ = {"redis-sentinel", (folder_.path() / "sentinel.conf").string()};
        start();
    }
    redis_process(const redis_process&) = delete;
    redis_process& operator=(const redis_process&) = delete;
    ~redis_process() { kill(); }

    void start() {
        std::vector<char*> arguments;
        for (std::string& word : words_) {
            arguments.push_back(word.data());
        }
        arguments.push_back(nullptr);
        process_ = ::fork();
        if (process_ == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            ::dup2(::open("/dev/null", O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
            ::execvp(arguments[0], arguments.data());
            ::_exit(127);
        }
        REQUIRE(comes([&] { return says({"PING"}) == "PONG"; }));
    }
    void kill() {
        ::kill(process_, SIGKILL);
        ::waitpid(process_, nullptr, 0);
    }
    void signal(int number) const { REQUIRE(::kill(process_, number) == 0); }

    /// What it replies, the parts of a list behind each other; nothing, if it does not.
    std::string says(const std::vector<std::string>& words) const {
        const timeval limit{10, 0};
        const std::unique_ptr<redisContext, split::redis_deleter> to(
            ::redisConnectWithTimeout("127.0.0.1", port, limit));
        std::vector<const char*> texts;
        for (const std::string& word : words) {
            texts.push_back(word.c_str());
        }
        const split::redis_reply said(
            to->err != 0 ? nullptr
                         : static_cast<redisReply*>(::redisCommandArgv(
                               to.get(), static_cast<int>(texts.size()), texts.data(), nullptr)));
        return said ? text_of(*said) : "";
    }
    split::redis_address address() const { return {{{"127.0.0.1", port}}}; }

    const std::uint16_t port = free_port();

  private:
    static std::string text_of(const redisReply& of) {
        if (of.type == REDIS_REPLY_INTEGER) {
            return std::to_string(of.integer);
        }
        std::string all = of.str != nullptr ? of.str : "";
        for (std::size_t i = 0; i < of.elements; ++i) {
            all += (i > 0 ? " " : "") + text_of(*of.element[i]);
        }
        return all;
    }
    temporary_directory folder_;
    std::vector<std::string> words_;
    pid_t process_ = -1;
};

}  // namespace tests
