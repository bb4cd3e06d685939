"""For scripts/keep-release: writes what tests/releases keeps of a release, from what is built."""
import os

import release


def test_what_is_built_is_kept(make_daemon, make_gpu, product, reap, tmp_path):
    daemon = make_daemon(make_gpu(FAKECUDA_KERNEL_NS=1_000_000)).start()
    sessions = release.make_sessions(daemon)
    daemon.stop()
    state = release.dump(daemon)
    daemon.start()
    conversation = release.converse(daemon, reap, tmp_path)
    release.write(release.RELEASES / os.environ["GPUSLICE_KEEP_RELEASE"], product, sessions, state, conversation)
