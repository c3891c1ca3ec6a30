#pragma once

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <sched.h>
#include <sstream>
#include <string>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "check.hpp"
#include "raw_connection.hpp"

namespace split::soak {

/// What a process holds, as /proc says.
struct process_figures {
    std::size_t descriptors = 0;
    std::size_t threads = 0;
    std::size_t resident_kb = 0;
    std::size_t peak_kb = 0;
};

struct http_answer {
    int status = 0;
    std::string body;
};

/// @throws failure if there is none of this name
inline double sample(const std::map<std::string, double>& page, const std::string& name) {
    const auto found = page.find(name);
    require(found != page.end(), "/metrics", "no " + name, "a value");
    return found->second;
}

/// A split_server as a child: a real process, with its log taken as it comes. It dies with this one.
class server_process {
  public:
    struct options {
        std::filesystem::path program;
        bool tls = false;
        std::filesystem::path state;
        std::vector<std::string> arguments;
        std::uint16_t port = 0;  ///< 0: any
        std::size_t private_disk_kb =
            0;                          ///< its state on a file system of its own, of this size (needs root)
        bool log_stands_still = false;  ///< nobody reads it, and there is no room in its pipe
    };

    /// Returns when it listens. @throws failure with the log if it does not
    explicit server_process(const options& how) : tls_(how.tls), state_(how.state) {
        std::filesystem::create_directories(how.state);
        std::filesystem::permissions(how.state, std::filesystem::perms::owner_all);
        std::vector<std::string> words{how.program.string(), "--listen",
                                       "127.0.0.1:" + std::to_string(how.port), "--state",
                                       how.state.string()};
        if (!how.tls) {
            words.emplace_back("--insecure-plaintext");
        }
        words.insert(words.end(), how.arguments.begin(), how.arguments.end());
        std::vector<char*> raw;
        for (std::string& word : words) {
            raw.push_back(word.data());
        }
        raw.push_back(nullptr);
        const std::string disk = "size=" + std::to_string(how.private_disk_kb) + "k,mode=0700";
        int out[2];
        int log[2];
        require(::pipe2(out, O_CLOEXEC) == 0 && ::pipe2(log, O_CLOEXEC) == 0, "pipe", std::strerror(errno),
                "two");
        process_ = ::fork();
        require(process_ >= 0, "fork", std::strerror(errno), "a process");
        if (process_ == 0) {  // only what is safe between fork and exec
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            // What this program or its parent ignores must not help the server.
            ::signal(SIGPIPE, SIG_DFL);
            ::signal(SIGXFSZ, SIG_DFL);
            ::dup2(out[1], STDOUT_FILENO);
            ::dup2(log[1], STDERR_FILENO);
            if (how.private_disk_kb > 0 &&
                (::unshare(CLONE_NEWNS) != 0 ||
                 ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
                 ::mount("soak", how.state.c_str(), "tmpfs", 0, disk.c_str()) != 0)) {
                ::_exit(126);
            }
            ::execv(raw[0], raw.data());
            ::_exit(127);
        }
        ::close(out[1]);
        ::close(log[1]);
        if (how.log_stands_still) {
            unread_ = log[0];
        } else {
            reader_ = std::jthread([this, from = log[0]] { read_log(from); });
        }
        std::string line;
        char c = 0;
        while (::read(out[0], &c, 1) == 1 && c != '\n') {
            line += c;
        }
        ::close(out[0]);
        const std::size_t place = line.find("://127.0.0.1:");
        if (place == std::string::npos) {
            const int status = wait(raw_connection::patience);
            throw failure("split_server did not start: status " + std::to_string(status) + ": " + take_log());
        }
        port_ = static_cast<std::uint16_t>(std::strtoul(line.c_str() + place + 13, nullptr, 10));
        if (how.log_stands_still) {
            const std::string pipe = "/proc/" + std::to_string(process_) + "/fd/2";
            const int to = ::open(pipe.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
            require(to >= 0, pipe, std::strerror(errno), "a pipe");
            const std::string line_of_4096 = std::string(4095, ' ') + "\n";
            while (::write(to, line_of_4096.data(), 4096) > 0) {
            }
            ::close(to);
        }
    }
    server_process(const server_process&) = delete;
    server_process& operator=(const server_process&) = delete;
    ~server_process() {
        if (process_ > 0) {
            ::kill(process_, SIGKILL);
            ::waitpid(process_, nullptr, 0);
        }
        if (unread_ >= 0) {
            ::close(unread_);
        }
    }

    endpoint where() const noexcept { return {port_, tls_}; }
    pid_t id() const noexcept { return process_; }
    const std::filesystem::path& state() const noexcept { return state_; }
    /// The state folder as the server sees it, a private disk included.
    std::filesystem::path state_inside() const {
        return "/proc/" + std::to_string(process_) + "/root" + state_.string();
    }

    void send_signal(int signal) const { ::kill(process_, signal); }

    /// Waits for its end. Its exit status, or minus the signal that killed it.
    int wait(milliseconds limit) {
        const auto end = steady::now() + limit;
        for (;;) {
            int status = 0;
            const pid_t got = ::waitpid(process_, &status, WNOHANG);
            if (got == process_) {
                process_ = -1;
                reader_ = {};
                return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
            }
            require(steady::now() < end, "the server's end", "none in " + text_of(limit.count()) + " ms",
                    "one");
            std::this_thread::sleep_for(milliseconds(2));
        }
    }

    /// What it logged since the last call. Whole lines.
    std::string take_log() {
        const std::lock_guard lock(mutex_);
        const std::size_t end = process_ < 0 ? log_.size() : log_.rfind('\n') + 1;
        std::string result = log_.substr(0, end);
        log_.erase(0, end);
        return result;
    }

    /// When nothing has come or gone for a tenth of a second: a connection that was just closed, as that of a
    /// GET, is still among the descriptors.
    process_figures quiet_figures() const {
        process_figures last = figures();
        for (int equal = 0; equal < 5;) {
            std::this_thread::sleep_for(milliseconds(20));
            const process_figures now = figures();
            equal = now.descriptors == last.descriptors && now.threads == last.threads ? equal + 1 : 0;
            last = now;
        }
        return last;
    }

    process_figures figures() const {
        process_figures result;
        const std::string folder = "/proc/" + std::to_string(process_);
        const std::filesystem::directory_iterator all(folder + "/fd");
        result.descriptors = static_cast<std::size_t>(std::distance(begin(all), end(all)));
        std::ifstream status(folder + "/status");
        for (std::string word; status >> word;) {
            if (word == "VmRSS:") {
                status >> result.resident_kb;
            } else if (word == "VmHWM:") {
                status >> result.peak_kb;
            } else if (word == "Threads:") {
                status >> result.threads;
            }
        }
        return result;
    }
    /// The peak begins again at what is resident now.
    void forget_peak() const { std::ofstream("/proc/" + std::to_string(process_) + "/clear_refs") << "5"; }

    /// Sets how long a file may become; nothing: as before. The disk is full for who may write none.
    void limit_files(std::optional<rlim_t> bytes) const {
        rlimit now{};
        ::prlimit(process_, RLIMIT_FSIZE, nullptr, &now);
        now.rlim_cur = bytes.value_or(now.rlim_max);
        require(::prlimit(process_, RLIMIT_FSIZE, &now, nullptr) == 0, "prlimit", std::strerror(errno),
                "a limit");
    }

    http_answer http(const std::string& method, const std::string& target, const std::string& token = {},
                     const std::string& body = {}) const {
        raw_connection to(where());
        require(to.secure(), "TLS handshake", "no", "a connection");
        std::string request = method + " " + target + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
        if (!token.empty()) {
            request += "Authorization: Bearer " + token + "\r\n";
        }
        request += "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
        to.send(request);
        const std::string all = to.receive_all();
        http_answer result;
        if (all.rfind("HTTP/1.1 ", 0) == 0) {
            result.status = std::atoi(all.c_str() + 9);
        }
        const std::size_t end = all.find("\r\n\r\n");
        result.body = end == std::string::npos ? std::string() : all.substr(end + 4);
        return result;
    }

    /// Every sample of /metrics by its name with labels.
    std::map<std::string, double> metrics() const {
        const http_answer page = http("GET", "/metrics", admin_token());
        require_equal("/metrics", page.status, 200);
        std::map<std::string, double> result;
        std::istringstream lines(page.body);
        for (std::string line; std::getline(lines, line);) {
            const std::size_t space = line.rfind(' ');
            if (!line.empty() && line.front() != '#' && space != std::string::npos) {
                result[line.substr(0, space)] = std::strtod(line.c_str() + space + 1, nullptr);
            }
        }
        return result;
    }

    std::string admin_token() const {
        std::string token;
        std::ifstream(state_inside() / "admin_token") >> token;
        return token;
    }

  private:
    void read_log(int from) {
        char data[4096];
        for (;;) {
            const ssize_t got = ::read(from, data, sizeof(data));
            if (got <= 0) {
                break;
            }
            const std::lock_guard lock(mutex_);
            log_.append(data, static_cast<std::size_t>(got));
        }
        ::close(from);
    }

    bool tls_;
    std::filesystem::path state_;
    pid_t process_ = -1;
    int unread_ = -1;
    std::uint16_t port_ = 0;
    std::mutex mutex_;
    std::string log_;
    std::jthread reader_;  // ends when the child has closed its end
};

/// Whether a child can be given a file system of its own.
inline bool can_mount() {
    const pid_t probe = ::fork();
    if (probe == 0) {
        ::_exit(::unshare(CLONE_NEWNS) == 0 &&
                        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                        ::mount("soak", "/tmp", "tmpfs", 0, "size=16k") == 0
                    ? 0
                    : 1);
    }
    int status = 1;
    ::waitpid(probe, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace split::soak
