"""The daemon answers while its loop has other things to do."""
import socket
import threading


def test_every_change_is_answered_while_others_connect_and_go(daemon):
    # An answer waits for the commit, so it is sent from the loop; events in between must not make it forgotten.
    stop = threading.Event()

    def knock():
        while not stop.is_set():
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
                connection.connect(str(daemon.attach_socket))

    knockers = [threading.Thread(target=knock) for _ in range(3)]
    for thread in knockers:
        thread.start()
    try:
        for _ in range(150):
            status, session = daemon.request("POST", "/v1/sessions", {"memory_bytes": 1 << 20})
            assert status == 201
            assert daemon.request("DELETE", f"/v1/sessions/{session['session_id']}")[0] == 204
    finally:
        stop.set()
        for thread in knockers:
            thread.join()
